"""The sections of docs/theory.md on bounds: Theorems III.4 and III.5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jopeq.experiments.page_words import percent, short, signed, table
from jopeq.experiments.theory_convergence import CLIPPED

Part = Mapping[str, Any]
Section = tuple[str, list[str]]

_AGGREGATION = """
## III.4: the error of the averaged model

**It says.** With the norm scale 3‖h‖/√M and gradients of E‖∇‖² ≤ ξ² (AS2), the decoded average w̃
is within E‖w̃ − w‖² ≤ 9τσ²·(Ση²)·Σα²ξ² of the true one: for equal weights it falls as 1/K.

**Measured.** K up to {clients:,} clients, each τ = {tau} steps of SGD on its own logistic
regression of {parameters} parameters (no regulariser, so that AS2 holds for every model with ξ²
the mean of ‖x‖²: nothing in the bound is estimated), `jopeq` with Laplace noise, ε = {epsilon:g},
R = 1; {trials} payloads of every client. Once with features of one size, once with the j-th of
size 1/j, whose updates have a few large entries. Bars: five standard errors.

![Error of the average against clients]({figures}/theory-aggregation.svg)

{table}

**Found.** The proof's first step is an equality, 9σ²·Σα²‖h‖² (dotted), and payloads that never
overload meet it to {agreement} at every K with even features; slope {slope}, as claimed. The
bound lies a factor {loose:.0f} above, which is what Jensen's inequality over τ steps and the
bound on the gradients give away. With unequal weights α ∝ 1/k the error follows Σα² as it should
(slope {zipf}).

The theorem assumes that scaling by 3‖h‖/√M puts samples into the unit ball. Where it does not,
they must be moved in for ε to hold, and that error is a bias, alike at every client and in every
round: it does not average out. With peaked features {clipped} of the entries are clipped, the
error stops falling at {floor}, and {broken}. At a fixed rate overload adds to it. A rotation
(`rotate=True`), which spreads every update over all entries, brings the slope back to {rotated}.
"""


def aggregation_section(part: Part, figures: str) -> Section:
    """Theorem III.4."""
    rows = {(r["features"], r["scheme"], r["weights"]): r for r in part["rows"]}
    free, rotated = "jopeq, no overload", "jopeq, R = 1, rotated"
    plain = rows["even", free, "equal"]
    peaked = rows["peaked", free, "equal"]
    off = max(abs(m / x - 1) for m, x in zip(plain["measured"], plain["exact"], strict=True))
    lines = [
        (
            r["features"],
            r["scheme"],
            percent(r["clipped"]),
            signed(r["slope"]),
            f"{r['measured'][0] / r['exact'][0]:.2f}",
            f"{r['measured'][-1] / r['exact'][-1]:.2f}",
            f"{r['measured'][-1] / r['bound'][-1]:.2f}",
        )
        for r in part["rows"]
        if r["weights"] == "equal"
    ]
    most = plain["counts"][-1]
    head = ("features", "scheme", "clipped", "slope", "measured / exact, K = 1")
    above = [
        k
        for k, m, b in zip(peaked["counts"], peaked["measured"], peaked["bound"], strict=True)
        if m > b
    ]
    broken = (
        f"from K = {above[0]:,} on it is above the bound"
        if above
        else f"at K = {most:,} it is still below the bound"
    )
    text = _AGGREGATION.format(
        figures=figures,
        clients=part["clients"],
        tau=part["tau"],
        parameters=part["parameters"],
        epsilon=part["epsilon"],
        trials=part["trials"],
        table=table(
            (*head, f"measured / exact, K = {most:,}", f"measured / bound, K = {most:,}"), lines
        ),
        agreement=percent(off),
        slope=signed(plain["slope"]),
        loose=plain["bound"][0] / plain["exact"][0],
        zipf=signed(rows["even", free, "zipf"]["slope"]),
        clipped=percent(peaked["clipped"]),
        floor=short(peaked["measured"][-1]),
        broken=broken,
        rotated=signed(rows["peaked", rotated, "equal"]["slope"]),
    )
    finding = (
        f"holds while no sample is clipped, slope {signed(plain['slope'])}; the bias of clipping "
        f"does not average out: with peaked updates {broken}; `rotate=True` repairs it"
    )
    return text, ["III.4", "the error of the average is bounded and falls as 1/K", finding]


_CONVERGENCE = """
## III.5: convergence as 1/t

**It says.** For ρ_s-smooth, ρ_c-strongly convex F_k and gradients bounded by ξ_k, local SGD with
η_t = τ/(ρ_c(t + φ)), φ = τ·max(1, 4ρ_s/ρ_c), has

    E F(w_t) − F⋆ ≤ ρ_s/(2(t + φ)) · max( (ρ_c² + τ²b)/(τρ_c),  φ‖w_0 − w⋆‖² )
    b = (1 + 36τ²σ²)·Σα²ξ² + 6ρ_sψ + 8(τ − 1)²·Σαξ²,  ψ = F(w⋆) − Σα·min F_k

**Measured.** Ridge regression on scikit-learn's diabetes data and regularised logistic regression
on its digits (even or odd), {clients} clients, samples dealt out at random or sorted
(heterogeneous: a tenth of the targets, or one digit, each); τ = {tau}, batches of one, `jopeq` at
ε = {epsilon:g}, R = {rate:g}, every update of every client a payload; {seeds} seeds (lines: their
mean, bands: their range). ρ_c, ρ_s, w⋆ and ψ are computed exactly. Slopes are fitted to log(F −
F⋆) over log(t + φ) in the last four fifths of t + φ.

![Distance from the optimum against steps]({figures}/theory-convergence.svg)

{table}

**Found.** With norm scaling JoPEQ converges as 1/t, iid or not, and loses a factor of
{worst_low:.2g} to {worst_high:.2g} against no coding at the last step. All these curves lie below
the bound as printed. Four remarks on the theorem itself.

*The printed constant has lost a factor ρ_c.* The proof has λ ≥ (1 + β²b)/(βρ_c) with β = τ/ρ_c,
which is (ρ_c² + τ²b)/(τρ_c²). As printed, the bound is not even invariant under a change of
units: multiply the loss by {factor} and F − F⋆ falls by as much, but this term by its square.
Started at the optimum of that loss (linear, heterogeneous), the measured F − F⋆ is up to
{over:.0f} times the printed bound:

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
is sent in the clear. With a public clip it does not shrink, and F − F⋆ grows (grey; slopes
{clip_slope}): then the clip must shrink with η_t, or follow the norms privately
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
    clips = [signed(r["slope"]) for (_, _, scheme), r in rows.items() if not _is_covered(scheme)]
    slopes = [r["slope"] for (_, _, scheme), r in rows.items() if _is_covered(scheme)]
    text = _CONVERGENCE.format(
        figures=figures,
        clients=part["clients"],
        tau=part["tau"],
        epsilon=part["epsilon"],
        rate=part["rate"],
        seeds=part["seeds"],
        table=table((*head, "bound, printed / corrected"), lines),
        worst_low=min(losses),
        worst_high=max(losses),
        factor=short(start["factor"]),
        over=over,
        recursion=recursion,
        recursion_rho=part["recursion"][0]["convexity"],
        clip_slope=" and ".join(clips),
        **_example(),
    )
    finding = (
        f"the rate is seen (slopes {signed(max(slopes))} to {signed(min(slopes))}, with JoPEQ and "
        "without); the constant of (20) has lost a factor ρ_c and is otherwise up to τ/(τ − 1) too "
        "small; AS2 and AS4 exclude each other; with a public clip there is no convergence"
    )
    return text, ["III.5", "F(w_t) − F⋆ falls as 1/t", finding]


def _is_covered(scheme: str) -> bool:
    """Whether the theorem speaks of it: it assumes the norm scale."""
    return scheme != CLIPPED


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
