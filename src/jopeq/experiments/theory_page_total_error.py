"""The section of docs/theory.md on Theorems III.1 and III.2."""

from __future__ import annotations

from collections.abc import Sequence

from jopeq.experiments.page_words import percent, short, table
from jopeq.experiments.theory_page_parts import Part, Section, listed, reading
from jopeq.experiments.theory_total_error import DITHERS, resolution
from jopeq.privacy.exact import INPUTS

# what the text speaks of: ε and R where the distance is large, and the same ε at a high rate
_EPSILON, _RATE, _HIGH_RATE = 4.0, 1.0, 4.0
_LOW_EPSILON = 1.0  # where the centre overloads often

_TEXT = """
## III.1 and III.2: the total error is the mechanism's noise

**They say.** With noise n of the characteristic function (14) or (15), the error n + e of JoPEQ
has exactly the multivariate t law (on a lattice) or the Laplace law of scale 2/ε (entry by
entry).

**Computed.** That noise does not exist
([why](guarantees.md#jopeq-where-this-differs-from-the-paper)). What can be built is *matched*
noise: of the target's family, with the target's variance minus the dither's. How far is its sum
with the dither from the target? On Z both have closed forms, and the distances follow to rounding
error; on A2 the density is a probability of a hexagon under a t law, integrated edge by edge
(mass missed by the quadrature: below {defect} with noise, {bare_defect} without).

![Densities, and Kolmogorov distance against rate]({figures}/theory-total-error.svg)

Kolmogorov distance / total variation, on Z against Laplace, with the paper's γ = 2R + 1/ε:

{line}

and on A2 against the t law of that ε, γ = 1.5(1 + s²ν/(ν − 2)); the Kolmogorov distance is that
of ‖n + e‖:

{plane}

Where a cell is marked °, the dither alone exceeds the target's variance and nothing is added.
Payloads {agree} these numbers: the Kolmogorov distance from the target, of {samples:,} samples all
over the ball (which resolve ±{resolution:.3f}):

{checked}

`staircase` {staircase}, for a law of its own: uniform on a cell plus a multiple of the step. Over
all {dithers:,} dithers and {inputs} inputs the law of its error is within {staircase_off} of that
law, which is {steps} of the dither, for ε = {staircase_epsilons}; {samples:,} sent samples are
within {staircase_measured:.4f}. It is no Laplace law either: from that of the same ε its total
variation is {from_laplace:.2f} to {from_laplace_high:.2f}.

**Found.** Equality of variance is not equality of law. The distance falls by {fall:.0f}% to
{fall_high:.0f}% a bit at high rates, but at the rates JoPEQ is made for it is not small: a total
variation of {tv_one:.2f} at ε = {epsilon:g}, R = {rate:g}. Since the privacy of a law lies in its
tails, which matched noise makes thinner, ε grows with the distance (next section). "Vanishing
overloading probability" is a condition on ε too: with the paper's γ a sample at the centre
overloads with probability {overload_low} at ε = {low_epsilon:g}, R = {rate:g}, and {overload_high}
at ε = {epsilon:g}, R = {rate:g} ({overload_edge} at the edge of the ball).

```python
>>> import jopeq
>>> from jopeq.theory.total_error import scalar_distance
>>> found = scalar_distance(jopeq.scheme("jopeq", epsilon={epsilon}, rate={rate}))
>>> round(found.kolmogorov, 4), round(found.total_variation, 4)
({ks_one:.4g}, {tv_exact:.4g})

```
"""


@reading("total_error")
def total_error_section(part: Part, figures: str) -> Section:
    """Theorems III.1 and III.2."""
    by_place = {(row["epsilon"], row["rate"]): row for row in part["line"]}
    one = by_place[_EPSILON, _RATE]
    rates = sorted({rate for _, rate in by_place})
    falls = [
        1 - by_place[e, rates[-1]]["total_variation"] / by_place[e, rates[-2]]["total_variation"]
        for e in sorted({epsilon for epsilon, _ in by_place})
    ]
    checked = [
        (
            row["lattice"],
            f"{row['epsilon']:g}",
            f"{row['rate']:g}",
            f"{row['computed']:.4f}",
            f"{row['measured']:.4f}",
        )
        for row in part["checked"]
    ]
    worst = max(row["kolmogorov"] for row in part["staircase"])
    failed = _without_its_law(part["staircase"], resolution(part["samples"]))
    wanted = "what the theorems wanted"
    text = _TEXT.format(
        figures=figures,
        defect=short(max(row["defect"] for row in part["plane"] if row["has_noise"])),
        bare_defect=short(max(row["defect"] for row in part["plane"] if not row["has_noise"])),
        line=_distances(part["line"]),
        plane=_distances(part["plane"]),
        samples=part["samples"],
        resolution=resolution(part["samples"]),
        agree=_agreement(part["checked"], resolution(part["samples"])),
        checked=table(("lattice", "ε", "R", "computed", "measured"), checked),
        staircase=f"does {wanted}" if not failed else f"should do {wanted}, but {failed} does not",
        dithers=DITHERS,
        inputs=len(INPUTS),
        staircase_off=short(worst),
        steps="half a step" if round(worst * DITHERS, 2) == 0.5 else f"{worst * DITHERS:.2g} steps",
        staircase_epsilons=listed([f"{row['epsilon']:g}" for row in part["staircase"]]),
        staircase_measured=max(row["measured"] for row in part["staircase"]),
        from_laplace=min(row["from_laplace"] for row in part["staircase"]),
        from_laplace_high=max(row["from_laplace"] for row in part["staircase"]),
        epsilon=_EPSILON,
        rate=_RATE,
        low_epsilon=_LOW_EPSILON,
        fall=100 * min(falls),
        fall_high=100 * max(falls),
        tv_one=one["total_variation"],
        ks_one=round(one["kolmogorov"], 4),
        tv_exact=round(one["total_variation"], 4),
        overload_low=percent(by_place[_LOW_EPSILON, _RATE]["overload_centre"]),
        overload_high=percent(one["overload_centre"]),
        overload_edge=percent(one["overload_edge"]),
    )
    finding = (
        f"not exactly, for any noise; with matched noise the total variation at ε = {_EPSILON:g} "
        f"is {one['total_variation']:.2f} at R = {_RATE:g} and "
        f"{by_place[_EPSILON, _HIGH_RATE]['total_variation']:.2f} at R = {_HIGH_RATE:g}. "
        + (
            f"`staircase` {failed} misses its law"
            if failed
            else "`staircase` has its own law exactly"
        )
    )
    return text, ["III.1, III.2", "the total error is exactly t or Laplace", finding]


def _agreement(rows: Sequence[Part], allowed: float) -> str:
    apart = [
        f"{row['lattice']} at ε = {row['epsilon']:g}, R = {row['rate']:g}"
        for row in rows
        if abs(row["measured"] - row["computed"]) > allowed
    ]
    return f"do not, on {listed(apart)}, agree with" if apart else "agree with"


def _without_its_law(rows: Sequence[Part], allowed: float) -> str:
    """Where ``staircase``, computed or sent, is too far: half a step of the dither is not."""
    failed = [
        f"{row['epsilon']:g}"
        for row in rows
        if row["kolmogorov"] > 0.505 / DITHERS or row["measured"] > allowed
    ]
    return f"at ε = {listed(failed)}" if failed else ""


def _distances(rows: Sequence[Part]) -> str:
    rates = sorted({row["rate"] for row in rows})
    epsilons = sorted({row["epsilon"] for row in rows})
    cells = {
        (row["epsilon"], row["rate"]): f"{row['kolmogorov']:.3f} / {row['total_variation']:.3f}"
        + ("" if row["has_noise"] else " °")
        for row in rows
    }
    lines = [(f"{e:g}", *(cells[e, rate] for rate in rates)) for e in epsilons]
    return table(("ε", *(f"R={rate:g}" for rate in rates)), lines)
