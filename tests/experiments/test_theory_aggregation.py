import dataclasses
import math

import pytest

from jopeq.experiments.theory_aggregation import aggregation_part


def test_the_average_errs_as_computed_while_nothing_is_clipped(parts):
    """Five standard errors: ‖·‖² of m entries of kurtosis at most 6 scatters by √(5/m).

    0.3% of the entries are clipped here: their bias is below 2% of the noise at every K.
    """
    part = parts["aggregation"]
    for row in part["rows"]:
        if row["features"] != "even" or row["scheme"] != "jopeq, no overload":
            continue
        for count, found, exact, bound in zip(
            row["counts"], row["measured"], row["exact"], row["bound"], strict=True
        ):
            draws = part["trials"] * (part["clients"] // count)
            scatter = math.sqrt(5 / part["parameters"] / draws)
            assert abs(found / exact - 1) < 5 * scatter + 0.02, (row["weights"], count)
            assert found < bound


def test_clipping_breaks_the_bound_and_rotation_keeps_it(kept_theory):
    rows = {
        (r["features"], r["scheme"]): r
        for r in kept_theory["aggregation"]["rows"]
        if r["weights"] == "equal"
    }
    clipped, rotated = rows["peaked", "jopeq, R = 1"], rows["peaked", "jopeq, R = 1, rotated"]
    assert clipped["measured"][-1] - 5 * clipped["error"][-1] > clipped["bound"][-1]
    assert rotated["measured"][-1] + 5 * rotated["error"][-1] < rotated["bound"][-1]
    assert rows["even", "jopeq, no overload"]["slope"] == pytest.approx(-1, abs=0.02)


def test_it_comes_out_the_same_twice(quick):
    small = dataclasses.replace(quick, clients=5, trials=1)
    assert aggregation_part(small) == aggregation_part(small)
