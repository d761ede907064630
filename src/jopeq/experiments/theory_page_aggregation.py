"""The section of docs/theory.md on Theorem III.4."""

from __future__ import annotations

import re
from collections.abc import Iterable

from jopeq.experiments.page_words import percent, short, signed, table
from jopeq.experiments.theory_figures import SIGMAS
from jopeq.experiments.theory_page_parts import Part, Section, listed, reading

_FREE = "jopeq, no overload"

_TEXT = """
## III.4: the error of the averaged model

**It says.** With the norm scale 3‖h‖/√M and gradients of E‖∇‖² ≤ ξ² (AS2), the decoded average w̃
is within E‖w̃ − w‖² ≤ 9τσ²·(Ση²)·Σα²ξ² of the true one: for equal weights it falls as 1/K.

**Measured.** K up to {clients:,} clients, each τ = {tau} steps of SGD on its own logistic
regression of {parameters} parameters (no regulariser, so that AS2 holds for every model with ξ²
the mean of ‖x‖²: nothing in the bound is estimated), `jopeq` with Laplace noise, ε = {epsilon:g},
R = {rate}; {trials} payloads of every client. Once with features of one size, once with the j-th
of size 1/j, whose updates have a few large entries. Bars: {sigmas} standard errors.

![Error of the average against clients]({figures}/theory-aggregation.svg)

{table}

**Found.** The proof's first step is an equality, 9σ²·Σα²‖h‖² (dotted), and payloads that never
overload meet it to {agreement} at every K with even features; their slope is {slope}, where 1/K has
−1. The bound is {loose} times as large, which is what Jensen's inequality over τ steps and the
bound on the gradients give away; {even}. With unequal weights α ∝ 1/k, too, the equality is met to
{zipf_agreement} (slope {zipf}).

The theorem assumes that scaling by 3‖h‖/√M puts samples into the unit ball. Where it does not,
they must be moved in for ε to hold, and that error is a bias, alike at every client and in every
round: it does not average out. With peaked features {clipped} of the entries are clipped and the
slope is {peaked}: at K = {most:,} the error is {floor}, {excess} times the dotted line (and
{fixed:.2f} times that with payloads of a fixed rate, which may overload), and {broken}. A rotation
(`rotate=True`), which spreads every update over all entries, makes the slope {rotated}, and
{repaired}.
"""


@reading("aggregation")
def aggregation_section(part: Part, figures: str) -> Section:
    """Theorem III.4."""
    rows = {(r["features"], r["scheme"], r["weights"]): r for r in part["rows"]}
    schemes = list(dict.fromkeys(r["scheme"] for r in part["rows"]))
    fixed, rotated = (s for s in schemes if s != _FREE)
    plain, zipf = rows["even", _FREE, "equal"], rows["even", _FREE, "zipf"]
    peaked, turned = rows["peaked", _FREE, "equal"], rows["peaked", rotated, "equal"]
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
    broken = _against_the_bound(peaked)
    text = _TEXT.format(
        figures=figures,
        clients=part["clients"],
        tau=part["tau"],
        parameters=part["parameters"],
        epsilon=part["epsilon"],
        rate=listed(_rates(schemes)),
        trials=part["trials"],
        sigmas=SIGMAS,
        table=table(
            (*head, f"measured / exact, K = {most:,}", f"measured / bound, K = {most:,}"), lines
        ),
        agreement=percent(_apart(plain)),
        slope=signed(plain["slope"]),
        loose=short(plain["bound"][0] / plain["exact"][0]),
        even=_against_the_bound(plain),
        zipf_agreement=percent(_apart(zipf)),
        zipf=signed(zipf["slope"]),
        clipped=percent(peaked["clipped"]),
        peaked=signed(peaked["slope"]),
        most=most,
        floor=short(peaked["measured"][-1]),
        excess=short(peaked["measured"][-1] / peaked["exact"][-1]),
        broken=broken,
        fixed=rows["peaked", fixed, "equal"]["measured"][-1] / peaked["measured"][-1],
        rotated=signed(turned["slope"]),
        repaired=_against_the_bound(turned),
    )
    finding = (
        f"{'does not hold' if _above(plain) else 'holds'} with even features "
        f"({percent(plain['clipped'])} of the entries clipped), slope "
        f"{signed(plain['slope'])}; the bias of clipping does not average out: with peaked "
        f"updates {broken}; `rotate=True` {'does not repair' if _above(turned) else 'repairs'} it"
    )
    return text, ["III.4", "the error of the average is bounded and falls as 1/K", finding]


def _rates(schemes: Iterable[str]) -> list[str]:
    """Those that the schemes' names tell."""
    return sorted(set(re.findall(r"R = ([0-9.]+)", " ".join(schemes))))


def _apart(row: Part) -> float:
    """The largest relative difference of what was measured from the exact error."""
    pairs = zip(row["measured"], row["exact"], strict=True)
    return float(max(abs(measured / exact - 1) for measured, exact in pairs))


def _above(row: Part) -> list[int]:
    """Every K whose error is larger than the bound."""
    lines = zip(row["counts"], row["measured"], row["bound"], strict=True)
    return [count for count, measured, bound in lines if measured > bound]


def _against_the_bound(row: Part) -> str:
    above = _above(row)
    if not above:
        return f"the error is below the bound up to K = {row['counts'][-1]:,}"
    if above == row["counts"][-len(above) :]:
        return f"the error is above the bound from K = {above[0]:,} on"
    return f"the error is above the bound at K = {listed([f'{count:,}' for count in above])}"
