"""Every sentence of docs/theory.md that the numbers could contradict is checked, and can fail."""

import pytest

from paper.pages import ClaimError
from paper.theorems.aggregation import FIXED, FREE, ROTATED
from paper.theorems.claims import by_setting, check, claims
from paper.theorems.convergence import CLIPPED


def average(parts, features, scheme, weights="equal"):
    return by_setting(parts["aggregation"])[features, scheme, weights]


def run(parts, scheme):
    return next(row for row in parts["convergence"]["rows"] if row["scheme"] == scheme)


def in_region(parts, is_inside, exact):
    part = parts["noise_share"]
    for line, coarse in enumerate(part["coarseness"]):
        for column, value in enumerate(coarse):
            if (value >= part["boundary"]) == is_inside:
                part["exact"][line][column] = exact
                return


def raised(row, key, place, value):
    row[key][place] = value


SPOIL = {
    "II.5: no p-value is small": lambda p: p["dither"]["lattices"][1].update(p_input=1e-4),
    "II.5: no error left its cell": lambda p: p["dither"]["lattices"][2].update(outside=1),
    "II.5: second moments are those of the cell": lambda p: p["dither"]["lattices"][0].update(
        second_moment_sigmas=-5.1
    ),
    "II.5: dither that stays in is rejected": lambda p: p["dither"]["control"].update(p_input=0.3),
    "II.5: codebooks overload at ‖x‖ = γ": lambda p: p["dither"]["overload"][3].update(
        overloaded=[0.0] * len(p["dither"]["overload"][3]["radii"])
    ),
    "III.1: payloads agree with the computed distances": lambda p: p["total_error"]["checked"][
        1
    ].update(measured=0.12),
    "III.1: no total error has its target's law": lambda p: p["total_error"]["plane"][3].update(
        total_variation=0.0
    ),
    "III.1: the distance falls with the rate": lambda p: p["total_error"]["line"][5].update(
        total_variation=0.5
    ),
    "III.1: staircase is within half a step of the dither of its law": lambda p: p["total_error"][
        "staircase"
    ][3].update(kolmogorov=1.6e-5),
    "III.1: staircase as sent has its law": lambda p: p["total_error"]["staircase"][3].update(
        measured=0.03
    ),
    "III.1: staircase is no Laplace law": lambda p: p["total_error"]["staircase"][3].update(
        from_laplace=0.01
    ),
    "III.3: ε is infinite in the region": lambda p: in_region(p, True, 9.0),
    "III.3: outside, exact ε is ε/√share to the digits kept": lambda p: in_region(p, False, None),
    "III.4: even features err as computed": lambda p: raised(
        average(p, "even", FREE), "exact", 3, 1e-6
    ),
    "III.4: so they do with unequal weights": lambda p: raised(
        average(p, "even", FREE, "zipf"), "exact", 3, 1e-6
    ),
    "III.4: their error falls as 1/K": lambda p: average(p, "even", FREE).update(slope=-0.9),
    "III.4: and is below the bound at every K": lambda p: raised(
        average(p, "even", FREE), "bound", -1, 1e-12
    ),
    "III.4: with peaked features the error is above the bound from some K on": lambda p: raised(
        average(p, "peaked", FREE), "bound", 1, 0.0
    ),
    "III.4: and with a fixed rate too": lambda p: average(p, "peaked", FIXED).update(
        measured=[0.0] * 10
    ),
    "III.4: a rotation brings it below the bound": lambda p: raised(
        average(p, "peaked", ROTATED), "bound", 0, 1e-12
    ),
    "III.4: and makes it fall as 1/K": lambda p: average(p, "peaked", ROTATED).update(slope=-0.6),
    "III.5: with the norm scale the slopes are nearer to −1 than to −½": lambda p: run(
        p, "none"
    ).update(slope=-0.6),
    "III.5: every seed is below the printed bound": lambda p: raised(
        run(p, "jopeq"), "highest", 7, 1e9
    ),
    "III.5: with a public clip F − F⋆ grows": lambda p: run(p, CLIPPED).update(slope=-0.4),
    "III.5: from the optimum, every seed is above the printed bound": lambda p: raised(
        p["convergence"]["from_optimum"], "lowest", 4, 0.0
    ),
    "III.5: and below the corrected one": lambda p: raised(
        p["convergence"]["from_optimum"], "highest", 4, 1e9
    ),
    "III.5: the recursion exceeds the printed and the derived constant": lambda p: p["convergence"][
        "recursion"
    ][2].update(proof=0.99),
    "III.5: and not the corrected one": lambda p: p["convergence"]["recursion"][2].update(
        corrected=1.01
    ),
}


def test_every_claim_holds_and_can_fail(kept):
    check(kept)
    assert [claim for claim, _ in claims(kept)] == list(SPOIL)


@pytest.mark.parametrize("claim", SPOIL)
def test_a_claim_fails_alone_and_stops_the_page(claim, kept):
    SPOIL[claim](kept)
    assert [name for name, holds in claims(kept) if not holds] == [claim]
    with pytest.raises(ClaimError, match="does not support") as caught:
        check(kept)
    assert claim in str(caught.value)


def test_a_public_clip_may_be_above_the_bound(kept):
    """The theorem does not cover it."""
    run(kept, CLIPPED)["highest"] = [1e9] * len(run(kept, CLIPPED)["highest"])
    check(kept)
