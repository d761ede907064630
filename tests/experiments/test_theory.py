"""The experiments on the theorems, at their quick setting, and the findings of the kept run."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

from jopeq.errors import DataError
from jopeq.experiments import theory
from jopeq.experiments.theory import PARTS, read_theory, run_theory
from jopeq.experiments.theory_setting import FULL, QUICK
from jopeq.experiments.theory_total_error import resolution

KEPT = Path(__file__).parents[2] / "results" / "theory.json"


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    path = tmp_path_factory.mktemp("theory") / "theory.json"
    return path, run_theory(path, QUICK)


@pytest.fixture(params=["quick", "kept"])
def parts(request, quick):
    if request.param == "quick":
        return quick[1]
    if not KEPT.exists():
        pytest.skip("no kept results")
    return read_theory(KEPT)


def test_all_is_kept_and_nothing_computed_twice(quick, monkeypatch):
    path, parts = quick
    assert read_theory(path) == parts
    assert list(parts) == list(PARTS)
    boom = dict.fromkeys(PARTS, lambda effort: pytest.fail("computed again"))
    monkeypatch.setattr(theory, "PARTS", boom)
    assert run_theory(path, QUICK) == parts
    assert not list(path.parent.glob("*.new"))


def test_what_is_missing_or_made_otherwise_is_computed(quick, tmp_path, monkeypatch):
    path = tmp_path / "theory.json"
    kept = read_theory(quick[0])
    del kept["noise_share"]
    kept["dither"]["effort"]["samples"] = 1
    path.write_text(json.dumps(kept))
    calls = []
    made = {name: lambda effort, name=name: {"made": name} for name in PARTS}
    monkeypatch.setattr(theory, "PARTS", made)
    parts = run_theory(path, QUICK, calls.append)
    assert calls == ["dither", "noise_share"]
    assert parts["dither"]["made"] == "dither"
    assert parts["aggregation"] == quick[1]["aggregation"]


def test_a_part_comes_out_the_same_twice():
    small = dataclasses.replace(QUICK, clients=5, trials=1)
    assert PARTS["aggregation"](small) == PARTS["aggregation"](small)


@pytest.mark.parametrize("text", ["{", "[1]", '{"dither": 3}'])
def test_a_broken_file_is_a_clear_error(text, tmp_path):
    path = tmp_path / "theory.json"
    path.write_text(text)
    with pytest.raises(DataError, match="delete it and run"):
        run_theory(path, QUICK)
    assert path.read_text() == text


@pytest.mark.skipif(not KEPT.exists(), reason="no kept results")
def test_the_kept_results_are_of_the_full_setting():
    for part in read_theory(KEPT).values():
        assert part["effort"]["samples"] == FULL.samples
    assert KEPT.stat().st_size < 300_000


def test_dither_is_uniform_and_the_control_is_not(parts):
    part = parts["dither"]
    keys = ("p_joint", "p_input", "p_neighbour")
    for row in part["lattices"]:
        assert min(*row["p_coordinate"], *(row[key] for key in keys)) > 1e-7, row["lattice"]
        assert row["outside"] == 0
        assert abs(row["second_moment_sigmas"]) < 5
    assert part["control"]["p_input"] < 1e-12


def test_codebooks_overload_at_the_radius_that_the_theorem_allows(parts):
    for row in parts["dither"]["overload"]:
        share = dict(zip(row["radii"], row["overloaded"], strict=True))
        assert share[0.0] == 0
        assert share[1.0] > 0.3
        if row["lattice"] == "Z":  # (|x| + Δ/2 − γ)/Δ, Δ = γ/2
            expected = np.clip((np.array(row["radii"]) - 0.75) / 0.5, 0, 1)
            count = parts["dither"]["samples"] // 16
            assert np.abs(expected - row["overloaded"]).max() < 5 * 0.5 / math.sqrt(count)


def test_payloads_have_the_computed_distances(parts):
    part = parts["total_error"]
    allowed = resolution(part["samples"])
    for row in part["checked"]:
        assert abs(row["measured"] - row["computed"]) < allowed, row
    for row in part["staircase"]:
        assert row["measured"] < allowed
        assert row["kolmogorov"] == pytest.approx(2**-17, rel=1e-3)
    assert all(row["kolmogorov"] > 1e-4 for row in (*part["line"], *part["plane"]))


def test_the_region_of_no_noise_is_the_region_of_no_privacy(parts):
    part = parts["noise_share"]
    for shares, exacts, coarse in zip(
        part["share"], part["exact"], part["coarseness"], strict=True
    ):
        for share, exact, level, epsilon in zip(
            shares, exacts, coarse, part["epsilons"], strict=True
        ):
            assert (exact is None) == (level >= part["boundary"])
            if exact is not None:
                assert exact == pytest.approx(epsilon / math.sqrt(share), rel=2e-3)


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


@pytest.mark.skipif(not KEPT.exists(), reason="no kept results")
def test_clipping_breaks_the_bound_and_rotation_keeps_it():
    rows = {
        (r["features"], r["scheme"]): r
        for r in read_theory(KEPT)["aggregation"]["rows"]
        if r["weights"] == "equal"
    }
    clipped, rotated = rows["peaked", "jopeq, R = 1"], rows["peaked", "jopeq, R = 1, rotated"]
    assert clipped["measured"][-1] - 5 * clipped["error"][-1] > clipped["bound"][-1]
    assert rotated["measured"][-1] + 5 * rotated["error"][-1] < rotated["bound"][-1]
    assert rows["even", "jopeq, no overload"]["slope"] == pytest.approx(-1, abs=0.02)


def test_convergence_stays_below_the_bound(parts):
    for row in parts["convergence"]["rows"]:
        if "clip" in row["scheme"]:
            continue
        for form in ("printed", "corrected"):
            assert (np.array(row["highest"]) < row[form]).all()


@pytest.mark.skipif(not KEPT.exists(), reason="no kept results")
def test_the_rate_and_its_exceptions():
    part = read_theory(KEPT)["convergence"]
    for row in part["rows"]:
        if "clip" in row["scheme"]:
            assert row["slope"] > 0.5
        else:
            # one run's slope scatters by 0.3, the mean of four by half of that or less
            assert row["slope"] == pytest.approx(-1, abs=0.5)
    start = part["from_optimum"]
    lowest, printed = np.array(start["lowest"]), np.array(start["printed"])
    assert (lowest > printed).all()
    assert (np.array(start["highest"]) < start["corrected"]).all()
