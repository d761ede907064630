"""Check what the prose of docs/paper.md says about the kept numbers.

The template states these claims as plain sentences. A claim that the numbers no longer support
stops the page: then the sentence must be rewritten, by somebody who looked at the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from paper.theorems.aggregation import FIXED, FREE, POWERS, ROTATED, SHOWN
from paper.theorems.convergence import CLIPPED, STRICTER
from paper.theorems.total_error import resolution
from paper.words import refuse

Part = Mapping[str, Any]
Claims = Iterator[tuple[str, bool]]

LEVEL = 0.01  # of all tests of Theorem II.5 together
SIGMAS = 5  # standard errors that a measured moment may be off
LITTLE = 0.1  # more than the ε asked for, which Theorem III.3's text calls little
P_VALUES = ("p_joint", "p_input", "p_neighbour")


def check(parts: Mapping[str, Part]) -> None:
    """Raise if the numbers do not support a sentence of the page."""
    failed = [claim for claim, holds in claims(parts) if not holds]
    refuse(failed, "paper/pages/theory.md.j2", "paper/theorems/claims.py")


def claims(parts: Mapping[str, Part]) -> Claims:
    """Every claim, and whether it holds."""
    yield from _dither(parts["dither"])
    yield from _total_error(parts["total_error"])
    yield from _noise_share(parts["noise_share"])
    yield from _aggregation(parts["aggregation"])
    yield from _convergence(parts["convergence"])
    yield from _mechanisms(parts["mechanisms"])


def p_values(part: Part) -> list[float]:
    """The p-values of all tests of Theorem II.5."""
    return [p for r in part["lattices"] for p in (*r["p_coordinate"], *(r[k] for k in P_VALUES))]


def _dither(part: Part) -> Claims:
    tests = p_values(part)
    allowed = -math.expm1(math.log1p(-LEVEL) / len(tests))
    moments = [row["second_moment_sigmas"] for row in part["lattices"]]
    at_gamma = [row["overloaded"][row["radii"].index(1.0)] for row in part["overload"]]
    yield "II.5: no p-value is small", min(tests) >= allowed
    yield "II.5: no error left its cell", not any(row["outside"] for row in part["lattices"])
    yield "II.5: second moments are those of the cell", max(map(abs, moments)) <= SIGMAS
    yield "II.5: dither that stays in is rejected", part["control"]["p_input"] < LEVEL
    yield "II.5: codebooks overload at ‖x‖ = γ", min(at_gamma) > 0


def _total_error(part: Part) -> Claims:
    allowed = resolution(part["samples"])
    apart = [abs(row["measured"] - row["computed"]) for row in part["checked"]]
    variations = [row["total_variation"] for row in (*part["line"], *part["plane"])]
    yield "III.1: payloads agree with the computed distances", max(apart) <= allowed
    yield "III.1: no total error has its target's law", min(variations) > 1e-3
    yield "III.1: the distance falls with the rate", min(falls(part)) > 0


def falls(part: Part) -> list[float]:
    """Share by which the total variation falls at the last rate, on Z."""
    by_place = {(row["epsilon"], row["rate"]): row["total_variation"] for row in part["line"]}
    before, last = sorted({rate for _, rate in by_place})[-2:]
    epsilons = {epsilon for epsilon, _ in by_place}
    return [1 - by_place[e, last] / by_place[e, before] for e in epsilons]


class Point(NamedTuple):
    """The points of Theorem III.3's map; ``factor`` is the exact ε over the requested ε."""

    is_inside: bool
    share: float
    factor: float


def map_points(part: Part) -> list[Point]:
    """All points of the map."""
    return [
        Point(coarse >= part["boundary"], share, math.inf if exact is None else exact / epsilon)
        for line in zip(part["coarseness"], part["share"], part["exact"], strict=True)
        for coarse, share, exact, epsilon in zip(*line, part["epsilons"], strict=True)
    ]


def _noise_share(part: Part) -> Claims:
    points = map_points(part)
    off = max(abs(point.factor * point.share**0.5 - 1) for point in points if not point.is_inside)
    lost = {point.factor for point in points if point.is_inside}
    yield "III.3: ε is infinite in the region", lost == {math.inf}
    yield "III.3: outside, exact ε is ε/√share to the digits kept", off < 1e-5


def above(row: Part) -> list[int]:
    """Every K whose error is larger than the bound of Theorem III.4."""
    lines = zip(row["counts"], row["measured"], row["bound"], strict=True)
    return [count for count, measured, bound in lines if measured > bound]


def apart(row: Part) -> float:
    """The largest relative difference of the measured from the exact error."""
    pairs = zip(row["measured"], row["exact"], strict=True)
    return float(max(abs(measured / exact - 1) for measured, exact in pairs))


def in_errors(row: Part, part: Part) -> float:
    """``apart`` in standard errors, beyond the 1% that clipping a few entries may make.

    ‖·‖² of m decoded errors scatters by at most √(5/m) of its mean, on Z with Laplace noise, and by
    less on lattices. At K = 1,000 there are as many draws as trials, too few to measure that.
    """
    draws = (part["trials"] * (part["clients"] // count) for count in row["counts"])
    lines = zip(draws, row["measured"], row["exact"], strict=True)
    return max(
        (abs(found / exact - 1.0) - 0.01) / math.sqrt(5.0 / part["parameters"] / several)
        for several, found, exact in lines
    )


def by_setting(part: Part) -> dict[tuple[str, str, str], Part]:
    """Rows of Theorem III.4 by features, scheme and weights."""
    return {(row["features"], row["scheme"], row["weights"]): row for row in part["rows"]}


def _aggregation(part: Part) -> Claims:
    rows = by_setting(part)
    even, peaked = rows["even", FREE, "equal"], rows["peaked", FREE, "equal"]
    rotated, broken = rows["peaked", ROTATED, "equal"], above(peaked)
    late = peaked["counts"][-len(broken) :] if broken else None
    yield "III.4: even features err as computed", apart(even) < 0.02
    lattices = [in_errors(row, part) for (_, name, _), row in rows.items() if name not in SHOWN]
    slopes = [rows["even", FREE, f"c = {c:g}"]["slope"] + c for c in POWERS]
    unequal = in_errors(rows["even", FREE, "zipf"], part)
    yield "III.4: so they do with unequal weights", unequal < SIGMAS
    yield "III.4: their error falls as 1/K", abs(even["slope"] + 1) < 0.02
    yield "III.4: and is below the bound at every K", not above(even)
    yield "III.4: with peaked features the error is above the bound from some K on", broken == late
    yield "III.4: and with a fixed rate too", bool(above(rows["peaked", FIXED, "equal"]))
    yield "III.4: a rotation brings it below the bound", not above(rotated)
    yield "III.4: and makes it fall as 1/K", abs(rotated["slope"] + 1) < 0.05
    yield "III.4: payloads on lattices err as computed", max(lattices) < SIGMAS
    yield "III.4: with K^c clients the slope is about −c", max(map(abs, slopes)) < 0.05


def by_epsilon(part: Part) -> list[Part]:
    """The linear problem, iid, from no noise to the strictest ε."""
    names = ("none", "jopeq", *(f"jopeq, ε = {epsilon:g}" for epsilon in reversed(STRICTER)))
    mine = {r["scheme"]: r for r in part["rows"] if (r["problem"], r["split"]) == ("linear", "iid")}
    return [mine[name] for name in names]


def _convergence(part: Part) -> Claims:
    covered = [row for row in part["rows"] if row["scheme"] != CLIPPED]
    clipped = [row for row in part["rows"] if row["scheme"] == CLIPPED]
    start, recursion = part["from_optimum"], part["recursion"]
    steepest = max(row["slope"] for row in covered)
    is_below = all(_below(row["highest"], row["printed"]) for row in covered)
    yield "III.5: with the norm scale the slopes are nearer to −1 than to −½", steepest < -0.75
    yield "III.5: every seed is below the printed bound", is_below
    yield "III.5: with a public clip F − F⋆ grows", min(row["slope"] for row in clipped) > 0
    exceeds = _below(start["printed"], start["lowest"])
    yield "III.5: from the optimum, every seed is above the printed bound", exceeds
    yield "III.5: and below the corrected one", _below(start["highest"], start["corrected"])
    least = min(min(row["printed"], row["proof"]) for row in recursion)
    most = max(row["corrected"] for row in recursion if row["tau"] > 1)
    yield "III.5: the recursion exceeds the printed and the derived constant", least > 1
    yield "III.5: and not the corrected one", most <= 1
    ends = [row["losses"][-1] for row in by_epsilon(part)]
    yield "III.5: stricter privacy ends further from the optimum", ends == sorted(ends)
    yield "III.5: both lemmas hold", max(max(row["lemmas"]) for row in covered) < 1


def _mechanisms(part: Part) -> Claims:
    inside = [share for row in part["scale"] for share in (row["Z"], row["A2"])]
    yield "III-A: at least 8/9 of all samples are in the ball", min(inside) > 8 / 9 - 1e-4
    flat, *rest = (row["ratios"] for row in part["elliptical"])
    grows = all(row == sorted(row) and row[-1] > 1.5 * max(flat) for row in rest)
    yield "II-C: the log-ratio is bounded for d = 1 and grows for d > 1", max(flat) < 4.01 and grows
    cells: dict[tuple[str, float], dict[str, float]] = {}
    for row in part["laws"]:
        cells.setdefault((row["lattice"], row["epsilon"]), {})[row["law"]] = row["variance"]
    others = {place for place, laws in cells.items() if min(laws, key=laws.__getitem__) != "l2"}
    yield "III-C: ℓ2 noise has the least variance but on A2 at ε = 8", others == {("A2", 8.0)}
    more = all(c["gaussian"] > c["laplace"] for (name, _), c in cells.items() if name != "E8")
    yield "III-C: Gaussian noise has more than Laplace on A2 and D4", more
    held = all(row["network"] < 1.05 * row["epsilon"] for row in part["network"])
    yield "III-C: an eavesdropper's ε is at most 5% above that asked for", held


def _below(low: list[float], high: list[float]) -> bool:
    return all(one < other for one, other in zip(low, high, strict=True))
