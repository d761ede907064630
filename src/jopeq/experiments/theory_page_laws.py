"""The sections of docs/theory.md on error laws: Theorems II.1, III.1, III.2 and III.3."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from jopeq.experiments.page_words import percent, short, signed, table
from jopeq.experiments.theory_total_error import resolution

Part = Mapping[str, Any]
Section = tuple[str, list[str]]

_DITHER = """
## II.1: the error of subtractive dither

**It says.** If no input lies outside the support (‖x‖ ≤ γ), the errors Q(x + d) − d − x are
independent of each other and of the inputs, and uniform on the lattice cell.

**Measured.** {samples:,} samples a lattice, sent as payloads (`sdq`, entropy-coded, so that
nothing overloads), with only {inputs} different inputs: given any one of them the error must have
the same law. Errors in basis coordinates, modulo 1, are uniform on the unit cube if the theorem
holds: p-values of Kolmogorov–Smirnov for each coordinate (the smallest is shown), and of χ² for
the boxes of the cube, for their independence of the input, and for that of neighbouring samples.

![Distribution of the errors, and overload]({figures}/theory-dither.svg)

{table}

**Found.** It holds on all four lattices: the smallest of {tests} p-values is {least:.2g}, and
among as many true hypotheses the smallest is below that with a probability of {family:.2g}. No
error left its cell. The same test of the same size rejects dither that is not subtracted (`dq`,
A2): {control}.

The condition, though, is not the right one. What must not happen is that x + d leaves the
codebook, and for ‖x‖ = γ it does so {at_gamma} of the time at R = {rate:g} (figure, right):
uniformity is lost before the radius γ is reached, on Z from |x| = γ − Δ/2 = {z_end:.2g}·γ on.
"""


def dither_section(part: Part, figures: str) -> Section:
    """Theorem II.1."""
    keys = ("p_joint", "p_input", "p_neighbour")
    values = [
        p for row in part["lattices"] for p in (*row["p_coordinate"], *(row[k] for k in keys))
    ]
    rows = [
        (
            row["lattice"],
            f"{min(row['p_coordinate']):.2g}",
            *(f"{row[key]:.2g}" for key in keys),
            f"{row['second_moment']:.5f}",
            f"{row['second_moment_expected']:.5f}",
            signed(row["second_moment_sigmas"], 1),
        )
        for row in part["lattices"]
    ]
    head = ("lattice", "p: coordinates", "p: boxes", "p: input", "p: neighbour")
    at_gamma = [
        f"{percent(row['overloaded'][row['radii'].index(1.0)])} ({row['lattice']})"
        for row in part["overload"]
    ]
    letters = 2 ** part["rate"]
    control = part["control"]["p_input"]
    text = _DITHER.format(
        samples=part["samples"],
        inputs=part["inputs"],
        figures=figures,
        table=table((*head, "second moment", "of the cell", "standard errors off"), rows),
        tests=len(values),
        least=min(values),
        family=-math.expm1(len(values) * math.log1p(-min(values))),
        control="p = 0 to machine precision" if control == 0 else f"p = {control:.0e}",
        at_gamma=_listed(at_gamma),
        rate=part["rate"],
        z_end=1 - 1 / letters,
    )
    finding = (
        "holds on Z, A2, D4 and E8; but ‖x‖ ≤ γ does not exclude overload, x + d must stay inside"
    )
    return text, ["II.1", "the dither's error is uniform on the cell, whatever the input", finding]


_TOTAL = """
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
Payloads agree with these numbers: the Kolmogorov distance from the target, of {samples:,} samples
all over the ball (which resolve ±{resolution:.3f}):

{checked}

`staircase` does what the theorems wanted, for a law of its own: uniform on a cell plus a multiple
of the step. Over all 2¹⁶ dithers and 33 inputs the law of its error is within {staircase} of that
law, which is half a step of the 16-bit dither, for every ε above; {samples:,} sent samples are
within {staircase_measured:.4f}.

**Found.** Equality of variance is not equality of law. The distance falls by {fall:.0f}% to
{fall_high:.0f}% a bit at high rates, but at the rates JoPEQ is made for it is not small: a total
variation of {tv_one:.2f} at ε = 4, R = 1. Since the privacy of a law lies in its tails, which
matched noise makes thinner, ε grows with the distance (next section). "Vanishing overloading
probability" is a condition on ε too: with the paper's γ a sample at the centre overloads with
probability {overload_low} at ε = 1, R = 1, and {overload_high} at ε = 4, R = 1 ({overload_edge}
at the edge of the ball).

```python
>>> import jopeq
>>> from jopeq.theory.total_error import scalar_distance
>>> found = scalar_distance(jopeq.scheme("jopeq", epsilon=4.0, rate=1.0))
>>> round(found.kolmogorov, 4), round(found.total_variation, 4)
({ks_one:.4g}, {tv_exact:.4g})

```
"""


def total_error_section(part: Part, figures: str) -> Section:
    """Theorems III.1 and III.2."""
    by_place = {(row["epsilon"], row["rate"]): row for row in part["line"]}
    one = by_place[4.0, 1.0]
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
    text = _TOTAL.format(
        figures=figures,
        defect=short(max(row["defect"] for row in part["plane"] if row["has_noise"])),
        bare_defect=short(max(row["defect"] for row in part["plane"] if not row["has_noise"])),
        line=_distances(part["line"]),
        plane=_distances(part["plane"]),
        samples=part["samples"],
        resolution=resolution(part["samples"]),
        checked=table(("lattice", "ε", "R", "computed", "measured"), checked),
        staircase=short(max(row["kolmogorov"] for row in part["staircase"])),
        staircase_measured=max(row["measured"] for row in part["staircase"]),
        fall=100 * min(falls),
        fall_high=100 * max(falls),
        tv_one=one["total_variation"],
        ks_one=round(one["kolmogorov"], 4),
        tv_exact=round(one["total_variation"], 4),
        overload_low=percent(by_place[1.0, 1.0]["overload_centre"]),
        overload_high=percent(one["overload_centre"]),
        overload_edge=percent(one["overload_edge"]),
    )
    finding = (
        f"not exactly, for any noise; with matched noise the total variation at ε = 4 is "
        f"{one['total_variation']:.2f} at R = 1 and "
        f"{by_place[4.0, 4.0]['total_variation']:.2f} at R = 4. "
        "`staircase` has its own law exactly"
    )
    return text, ["III.1, III.2", "the total error is exactly t or Laplace", finding]


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


_SHARE = """
## III.3: when quantization alone is private

**It says.** On Z, JoPEQ with noise of an infinitesimally small variance is ε-LDP when √24 ≤
γε/2^R.

**Computed.** The share 1 − (γε/2^R)²/24 of the error's variance that is left for the noise, and
the exact ε against the server (the supremum over inputs, dithers and letters of the real
channel), for γ = 2R + 1/ε and {least} to {most} letters.

![Noise share and exact ε over ε and R]({figures}/theory-noise-share.svg)

{table}

**Found.** The arithmetic is right: the dither's variance reaches the Laplace law's exactly where
the theorem says, at R = 1 from ε = {edge_one:.2f} on, at R = 2 from {edge_two:.2f}, at R = 3 from
{edge_three:.2f}. The conclusion is not. Equal variance does not make a bounded error private: to
somebody who knows the dither a letter excludes every input beyond the edges of its cell, so that
in the whole region of the theorem ε = ∞. Outside it, matched noise of scale b has ε = 2/b, which
is the ε asked for divided by the square root of the noise's share (on the whole map to {off}):
twice as much where a quarter of the variance is noise, and less than 10% more only where at least
{safe} is.
"""


def noise_share_section(part: Part, figures: str) -> Section:
    """Theorem III.3."""
    flat = [
        (share, exact / epsilon)
        for shares, exacts in zip(part["share"], part["exact"], strict=True)
        for share, exact, epsilon in zip(shares, exacts, part["epsilons"], strict=True)
        if exact is not None
    ]
    rows = [
        (
            f"{row['epsilon']:g}",
            f"{row['letters']}",
            f"{row['coarseness']:.2f}"
            + (" ≥ √24" if row["coarseness"] >= part["boundary"] else ""),
            percent(row["share"]) if row["share"] else "none",
            "∞" if row["exact"] is None else f"{row['exact']:.2f}",
        )
        for row in part["examples"]
    ]
    edges = [(2**rate * part["boundary"] - 1) / (2 * rate) for rate in (1, 2, 3)]
    text = _SHARE.format(
        figures=figures,
        least=min(part["letters"]),
        most=max(part["letters"]),
        table=table(("ε asked for", "letters 2^R", "γε/2^R", "noise's share", "exact ε"), rows),
        edge_one=edges[0],
        edge_two=edges[1],
        edge_three=edges[2],
        off=percent(max(abs(factor * share**0.5 - 1) for share, factor in flat)),
        safe=percent(min(share for share, factor in flat if factor < 1.1)),
    )
    finding = "the variances are as stated; the ε against the server is ∞ in the whole region"
    return text, ["III.3", "no noise is needed where √24 ≤ γε/2^R", finding]


def _listed(items: Sequence[str]) -> str:
    return ", ".join(items[:-1]) + " and " + items[-1]
