"""The section of docs/theory.md on Theorem III.5."""

from __future__ import annotations

from collections.abc import Iterable

from jopeq.experiments.page_words import percent, short, signed, table
from jopeq.experiments.theory_convergence import CLIPPED, TAIL
from jopeq.experiments.theory_page_parts import Part, Section, listed, reading

# slopes of 1/t and of 1/√t: a curve falls as 1/t, or faster, if its own is nearer to the first
_WANTED, _SLOWER = -1.0, -0.5

_TEXT = """
## III.5: convergence as 1/t

**It says.** For ρ_s-smooth, ρ_c-strongly convex F_k and gradients bounded by ξ_k, local SGD with
η_t = τ/(ρ_c(t + φ)), φ = τ·max(1, 4ρ_s/ρ_c), has

    E F(w_t) − F⋆ ≤ ρ_s/(2(t + φ)) · max( (ρ_c² + τ²b)/(τρ_c),  φ‖w_0 − w⋆‖² )
    b = (1 + 36τ²σ²)·Σα²ξ² + 6ρ_sψ + 8(τ − 1)²·Σαξ²,  ψ = F(w⋆) − Σα·min F_k

**Measured.** Ridge regression on scikit-learn's diabetes data and regularised logistic regression
on its digits (even or odd), {clients} clients, samples dealt out at random or sorted
(heterogeneous: neighbouring targets, or nearly one digit, each); τ = {tau}, batches of one,
`jopeq` at ε = {epsilon:g}, R = {rate:g}, every update of every client a payload; {seeds} seeds
(lines: their mean, bands: their range). ρ_c, ρ_s, w⋆ and ψ are computed exactly. Slopes are fitted
to log(F − F⋆) over log(t + φ), from {tail} of the last t + φ on.

![Distance from the optimum against steps]({figures}/theory-convergence.svg)

{table}

**Found.** With norm scaling JoPEQ has slopes of {jopeq_slopes}, iid or not: nearer to the {wanted}
of 1/t than to the {slower} of 1/√t{but_for}. At the end F − F⋆ is {worst_low:.2g} to
{worst_high:.2g} times that without coding. {below} Four remarks on the theorem itself.

*The printed constant has lost a factor ρ_c.* The proof has λ ≥ (1 + β²b)/(βρ_c) with β = τ/ρ_c,
which is (ρ_c² + τ²b)/(τρ_c²). As printed, the bound is not even invariant under a change of
units: multiply the loss by {factor} and F − F⋆ falls by as much, but this term by its square.
Started at the optimum of that loss (linear, heterogeneous), the measured F − F⋆ is up to
{over} times the printed bound:

![Measured distance above the bound as printed]({figures}/theory-constant.svg)

*The derived one is too small as well.* With T = t + φ the induction needs λ(τ − 1 + 1/(T + 1)) ≥
τ²b/ρ_c², for which λ = τ²b/(ρ_c²(τ − 1)) suffices: "corrected" above. If the proof's recursion δ
→ (1 − ηρ_c)δ + η²b is taken with equality (ρ_c = {recursion_rho:g}), then T·δ_t exceeds the λ
that should bound it, by these factors; for τ = 1 no constant does, since there the recursion
falls as (log t)/t only:

{recursion}

*AS2 and AS4 exclude each other* on all of R^m: a strongly convex F_k has gradients as long as one
likes. Here ξ_k² is the largest E‖∇‖² over all models that were visited.

*It is the norm scale that converges.* The noise shrinks with the update because the update's norm
is sent in the clear. With a public clip it does not shrink, and F − F⋆ {clip_verdict} (grey;
slopes {clip_slope}): the clip must shrink with η_t, or follow the norms privately
(`clip="adaptive"` in training).

```python
>>> from jopeq.theory.convergence import ConvergenceBound
>>> bound = ConvergenceBound(tau=5, convexity=0.5, smoothness=5.0, gap=0.0, variance=0.5,
...                          weights=(0.1,) * 10, gradient_bounds=(1.0,) * 10, start=1.0)
>>> forms = ("printed", "proof", "corrected")
>>> bound.phi, [round(float(bound.at(10_000, form)), 3) for form in forms]
({example_phi}, {example})

```
"""


@reading("convergence")
def convergence_section(part: Part, figures: str) -> Section:
    """Theorem III.5."""
    rows = {(r["problem"], r["split"], r["scheme"]): r for r in part["rows"]}
    lines = [
        (
            f"{problem}, {split}",
            scheme,
            f"{r['convexity']:.2g}, {r['smoothness']:.2g}",
            f"{r['gap']:.2g}",
            f"{r['phi']:.0f}",
            f"{signed(r['slope'])} ({signed(min(r['slopes']))} … {signed(max(r['slopes']))})",
            short(r["losses"][-1]),
            f"{short(r['printed'][-1])} / {short(r['corrected'][-1])}"
            if _is_covered(scheme)
            else "–",
        )
        for (problem, split, scheme), r in rows.items()
    ]
    head = ("problem", "scheme", "ρ_c, ρ_s", "ψ", "φ", "slope (seeds)", "F − F⋆ at the end")
    losses = [
        r["losses"][-1] / rows[problem, split, "none"]["losses"][-1]
        for (problem, split, scheme), r in rows.items()
        if scheme == "jopeq"
    ]
    start = part["from_optimum"]
    over = max(m / b for m, b in zip(start["losses"], start["printed"], strict=True))
    recursion = table(
        ("τ", "over printed λ", "over derived λ", "over corrected λ"),
        [
            (
                str(r["tau"]),
                f"{r['printed']:.2f}",
                f"{r['proof']:.2f}",
                f"{r['corrected']:.3f}" if r["tau"] > 1 else "–",
            )
            for r in part["recursion"]
        ],
    )
    covered = [r for r in part["rows"] if _is_covered(r["scheme"])]
    private = [r for r in covered if r["scheme"] == "jopeq"]
    clips = [r["slope"] for r in part["rows"] if not _is_covered(r["scheme"])]
    grows = min(clips) > 0
    text = _TEXT.format(
        figures=figures,
        clients=part["clients"],
        tau=part["tau"],
        epsilon=part["epsilon"],
        rate=part["rate"],
        seeds=part["seeds"],
        table=table((*head, "bound, printed / corrected"), lines),
        tail=percent(TAIL),
        jopeq_slopes=_range(r["slope"] for r in private),
        wanted=signed(_WANTED, 1),
        slower=signed(_SLOWER, 1),
        but_for=_but_for_slow(private),
        below=_below(covered),
        worst_low=min(losses),
        worst_high=max(losses),
        factor=short(start["factor"]),
        over=short(over),
        recursion=recursion,
        recursion_rho=part["recursion"][0]["convexity"],
        clip_verdict="grows" if grows else "does not grow everywhere",
        clip_slope=listed([signed(slope) for slope in clips]),
        **_example(),
    )
    finding = (
        f"the rate is seen (slopes {_range(r['slope'] for r in covered)}, with JoPEQ and "
        f"without){_but_for_slow(covered)}; the constant of (20) has "
        "lost a factor ρ_c and is otherwise up to τ/(τ − 1) too small; AS2 and AS4 exclude each "
        f"other; with a public clip F − F⋆ {'grows' if grows else 'does not grow everywhere'}"
    )
    return text, ["III.5", "F(w_t) − F⋆ falls as 1/t", finding]


def _is_covered(scheme: str) -> bool:
    """Whether the theorem speaks of it: it assumes the norm scale."""
    return scheme != CLIPPED


def _name(row: Part) -> str:
    return f"{row['problem']}, {row['split']}, {row['scheme']}"


def _range(slopes: Iterable[float]) -> str:
    ordered = sorted(slopes)
    return f"{signed(ordered[-1])} to {signed(ordered[0])}"


def _but_for_slow(rows: Iterable[Part]) -> str:
    """Whose curves do not fall as 1/t."""
    slow = [
        f"{_name(row)} ({signed(row['slope'])})"
        for row in rows
        if row["slope"] > (_WANTED + _SLOWER) / 2
    ]
    return f", but for {listed(slow)}" if slow else ""


def _below(rows: Iterable[Part]) -> str:
    """Whether every seed is below the bound as printed, always."""
    above = [
        _name(row)
        for row in rows
        if any(h > bound for h, bound in zip(row["highest"], row["printed"], strict=True))
    ]
    if above:
        return f"At some t a seed is above the bound as printed: {listed(above)}."
    return "So scaled, or not coded, every seed lies below the bound as printed at every t."


def _example() -> dict[str, str]:
    from jopeq.theory.convergence import FORMS, ConvergenceBound

    bound = ConvergenceBound(
        tau=5,
        convexity=0.5,
        smoothness=5.0,
        gap=0.0,
        variance=0.5,
        weights=(0.1,) * 10,
        gradient_bounds=(1.0,) * 10,
        start=1.0,
    )
    values = [round(float(bound.at(10_000, form)), 3) for form in FORMS]
    return {"example_phi": str(bound.phi), "example": str(values)}
