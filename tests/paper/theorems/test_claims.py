"""Every sentence of docs/paper.md that the numbers could contradict is checked, and can fail."""

import pytest

from paper.theorems.aggregation import FIXED, FREE, ROTATED
from paper.theorems.claims import by_epsilon, by_setting, check, claims
from paper.theorems.convergence import CLIPPED
from paper.words import ClaimError


def average(features, scheme, weights="equal"):
    return lambda parts: by_setting(parts["aggregation"])[features, scheme, weights]


def run(scheme):
    rows = "convergence", "rows"
    return lambda parts: next(r for r in at(parts, rows) if r["scheme"] == scheme)


def stricter(parts):
    return by_epsilon(parts["convergence"])[2]


def at(parts, path):
    for key in path:
        parts = key(parts) if callable(key) else parts[key]
    return parts


EVEN, PEAKED, TURNED = average("even", FREE), average("peaked", FREE), average("peaked", ROTATED)
LATTICES = ("dither", "lattices")
START, RECURSION = ("convergence", "from_optimum"), ("convergence", "recursion", 2)
INSIDE, OUTSIDE = ("noise_share", "exact", 0, 36), ("noise_share", "exact", 0, 0)  # of the region
MECHANISMS = ("mechanisms",)
SPOIL = [  # for every claim, in order: a place, and a value that contradicts the claim
    (*LATTICES, 1, "p_input", 1e-4),
    (*LATTICES, 2, "outside", 1),
    (*LATTICES, 0, "second_moment_sigmas", -5.1),
    ("dither", "control", "p_input", 0.3),
    ("dither", "overload", 3, "overloaded", [0.0] * 27),
    ("total_error", "checked", 1, "measured", 0.12),
    ("total_error", "plane", 3, "total_variation", 0.0),
    ("total_error", "line", 5, "total_variation", 0.5),
    (*INSIDE, 9.0),
    (*OUTSIDE, None),
    (EVEN, "exact", 3, 1e-6),
    (average("even", FREE, "zipf"), "measured", [0.0] * 10),
    (EVEN, "slope", -0.9),
    (EVEN, "bound", -1, 1e-12),
    (PEAKED, "bound", 1, 0.0),
    (average("peaked", FIXED), "measured", [0.0] * 10),
    (TURNED, "bound", 0, 1e-12),
    (TURNED, "slope", -0.6),
    (average("even", "jopeq, l2 on BCC", "zipf"), "measured", [0.0] * 10),
    (average("even", FREE, "c = 0.5"), "slope", -0.44),
    (run("none"), "slope", -0.6),
    (run("jopeq"), "highest", 7, 1e9),
    (run(CLIPPED), "slope", -0.4),
    (*START, "lowest", 4, 0.0),
    (*START, "highest", 4, 1e9),
    (*RECURSION, "proof", 0.99),
    (*RECURSION, "corrected", 1.01),
    (stricter, "losses", [0.0]),
    (run("jopeq, t on A2"), "lemmas", [1.01, 0.5]),
    (*MECHANISMS, "scale", 2, "A2", 0.88),
    (*MECHANISMS, "elliptical", 1, "ratios", [4.0, 5.0, 5.5, 5.9]),
    (*MECHANISMS, "laws", 2, "variance", 15.95),
    (*MECHANISMS, "laws", 3, "variance", 15.95),
    (*MECHANISMS, "network", 2, "network", 4.3),
]


@pytest.mark.parametrize("number", range(len(SPOIL)))
def test_a_claim_holds_or_fails_alone_and_stops_the_page(number, kept):
    check(kept)
    names = [claim for claim, _ in claims(kept)]
    assert len(names) == len(SPOIL)
    *path, place, value = SPOIL[number]
    at(kept, path)[place] = value
    assert [name for name, holds in claims(kept) if not holds] == [names[number]]
    with pytest.raises(ClaimError, match="do not support") as caught:
        check(kept)
    assert names[number] in str(caught.value)
