"""The section of docs/theory.md on Theorem II.5."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from jopeq.experiments.page_words import percent, signed, table
from jopeq.experiments.theory_page_parts import Part, Section, listed, reading

LEVEL = 0.01  # of all tests together, below which a lattice is an exception
SIGMAS = 5  # of its second moment, beyond which it is one too
_TESTS = ("p_joint", "p_input", "p_neighbour")

_TEXT = """
## II.5: the error of subtractive dither

**It says.** If no input lies outside the support (‖x‖ ≤ γ), the errors Q(x + d) − d − x are
independent of each other and of the inputs, and uniform on the lattice cell.

**Measured.** {samples:,} samples a lattice, sent as payloads (`sdq`, entropy-coded, so that
nothing overloads), with only {inputs} different inputs: given any one of them the error must have
the same law. Errors in basis coordinates, modulo 1, are uniform on the unit cube if the theorem
holds: p-values of Kolmogorov–Smirnov for each coordinate (the smallest is shown), and of χ² for
the boxes of the cube, for their independence of the input, and for that of neighbouring samples.
A lattice is an exception if an error leaves its cell, if the second moment is more than {sigmas}
standard errors off, or if a p-value is below what {tests} true hypotheses all exceed with a
probability of {sure}.

![Distribution of the errors, and overload]({figures}/theory-dither.svg)

{table}

**Found.** It {verdict}: the smallest of {tests} p-values is {least:.2g}, and among as many true
hypotheses the smallest is below that with a probability of {family:.2g}. {outside} The same test
of the same size {rejects} dither that is not subtracted (`{control}`, {control_lattice}): p =
{control_p}.

{condition}
"""

_NOT_THE_RIGHT_CONDITION = """The condition, though, is not the right one. What must not happen is
that x + d leaves the codebook, and for ‖x‖ = γ it does so {at_gamma} of the time at R = {rate:g}
(figure, right): uniformity is lost before the radius γ is reached, on Z from |x| = γ − Δ/2 =
{z_end:.2g}·γ on."""
_THE_RIGHT_CONDITION = """The condition suffices: at ‖x‖ = γ no sample overloads at R = {rate:g}
(figure, right)."""


@reading("dither")
def dither_section(part: Part, figures: str) -> Section:
    """Theorem II.5."""
    values = [p for row in part["lattices"] for p in _p_values(row)]
    least = min(values)
    verdict = _verdict(_exceptions(part["lattices"], len(values)))
    rows = [
        (
            row["lattice"],
            f"{min(row['p_coordinate']):.2g}",
            *(f"{row[key]:.2g}" for key in _TESTS),
            f"{row['second_moment']:.5f}",
            f"{row['second_moment_expected']:.5f}",
            signed(row["second_moment_sigmas"], 1),
        )
        for row in part["lattices"]
    ]
    head = ("lattice", "p: coordinates", "p: boxes", "p: input", "p: neighbour")
    control = part["control"]
    at_gamma = {
        row["lattice"]: row["overloaded"][row["radii"].index(1.0)] for row in part["overload"]
    }
    overloads = any(at_gamma.values())
    text = _TEXT.format(
        samples=part["samples"],
        inputs=part["inputs"],
        sigmas=SIGMAS,
        sure=percent(1 - LEVEL),
        figures=figures,
        table=table((*head, "second moment", "of the cell", "standard errors off"), rows),
        verdict=verdict,
        tests=len(values),
        least=least,
        family=-math.expm1(len(values) * math.log1p(-least)) if least < 1 else 1,
        outside=_outside(part["lattices"]),
        rejects="rejects" if control["p_input"] < LEVEL else "does not reject",
        control=control["scheme"],
        control_lattice=control["lattice"],
        control_p=f"{control['p_input']:.1g}" if control["p_input"] else "0 to machine precision",
        condition=(_NOT_THE_RIGHT_CONDITION if overloads else _THE_RIGHT_CONDITION).format(
            at_gamma=listed([f"{percent(share)} ({name})" for name, share in at_gamma.items()]),
            rate=part["rate"],
            z_end=1 - 2 ** -part["rate"],
        ),
    )
    finding = verdict + (
        "; but ‖x‖ ≤ γ does not exclude overload, x + d must stay inside" if overloads else ""
    )
    return text, ["II.5", "the dither's error is uniform on the cell, whatever the input", finding]


def _p_values(row: Part) -> list[float]:
    return [*row["p_coordinate"], *(row[key] for key in _TESTS)]


def _exceptions(rows: Sequence[Part], tests: int) -> dict[str, str]:
    """What each lattice has against the theorem; most often nothing."""
    allowed = -math.expm1(math.log1p(-LEVEL) / tests)
    found = {}
    for row in rows:
        reasons = []
        if min(_p_values(row)) < allowed:
            reasons.append(f"p = {min(_p_values(row)):.1g}")
        if row["outside"]:
            reasons.append("errors outside the cell")
        if abs(row["second_moment_sigmas"]) > SIGMAS:
            reasons.append("second moment")
        found[row["lattice"]] = ", ".join(reasons)
    return found


def _verdict(exceptions: Mapping[str, str]) -> str:
    kept = [name for name, reasons in exceptions.items() if not reasons]
    broken = [f"{name} ({reasons})" for name, reasons in exceptions.items() if reasons]
    if not broken:
        return f"holds on {listed(kept)}"
    if not kept:
        return f"does not hold on {listed(broken)}"
    return f"holds on {listed(kept)}, but not on {listed(broken)}"


def _outside(rows: Sequence[Part]) -> str:
    left = [f"{row['outside']:,} ({row['lattice']})" for row in rows if row["outside"]]
    return f"Errors that left their cell: {listed(left)}." if left else "No error left its cell."
