"""The theorems on docs/paper.md are what the kept results say; smaller experiments agree."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize

from jopeq.entries.quantized import JoPEQ
from jopeq.errors import DataError
from paper import results
from paper.theorems import figures
from paper.theorems.aggregation import FREE, SHOWN
from paper.theorems.claims import SIGMAS, by_setting, claims, in_errors
from paper.theorems.convergence import NAMES, SPLITS, build
from paper.theorems.mechanisms import letter_chances
from paper.theorems.noise_share import BOUNDARY, _point

ROOT = Path(__file__).parents[3]


def test_the_kept_results_make_a_page_with_their_numbers_and_figures(tmp_path, kept, monkeypatch):
    """Figures are drawn, but neither laid out nor rendered, which takes longest."""
    monkeypatch.setattr("matplotlib.figure.Figure.draw_without_rendering", lambda figure: None)
    monkeypatch.setattr(figures, "svg", lambda figure: b"drawn" if figure.axes else b"")
    kept["noise_share"]["examples"][0]["exact"] = 1.2345
    (tmp_path / "theory.json").write_text(json.dumps(kept))
    page = tmp_path / "docs" / "paper.md"
    assert "theory" not in results.run(tmp_path, page)
    text = page.read_text()
    assert "1.24 |" in text
    assert "1.24 |" not in (ROOT / "docs" / "paper.md").read_text()
    for name in figures.FIGURES:
        assert f"(figures/{name}.svg)" in text
        assert (page.parent / "figures" / f"{name}.svg").read_bytes() == b"drawn"
        assert (ROOT / "docs" / "figures" / f"{name}.svg").exists()


@pytest.mark.parametrize("broken", ["{", "[1]", '{"dither": 3}', "no densities"])
def test_a_broken_file_is_a_clear_error_and_nothing_is_written(broken, kept, tmp_path):
    if broken == "no densities":  # which only a figure needs
        del kept["total_error"]["densities"]
        broken = json.dumps(kept)
    (tmp_path / "theory.json").write_text(broken)
    with pytest.raises(DataError, match="delete it and run"):
        results.run(tmp_path, tmp_path / "docs" / "paper.md")
    assert [path.name for path in tmp_path.iterdir()] == ["theory.json"]
    assert (tmp_path / "theory.json").read_text() == broken


LARGE = {  # sentences that take a thousand clients or rounds
    "III.4: even features err as computed",
    "III.4: with peaked features the error is above the bound from some K on",
    "III.4: and with a fixed rate too",
    "III.5: with the norm scale the slopes are nearer to −1 than to −½",
    "III.5: with a public clip F − F⋆ grows",
}


def test_small_experiments_support_the_sentences(parts):
    """Five standard errors: ‖·‖² of m entries of kurtosis at most 6 scatters by √(5/m)."""
    assert {name for name, holds in claims(parts) if not holds} <= LARGE
    assert parts["dither"]["control"]["p_input"] < 1e-12
    even = by_setting(parts["aggregation"])["even", FREE, "equal"]
    assert in_errors(even, parts["aggregation"]) < SIGMAS


def test_an_average_that_errs_by_a_fortieth_more_breaks_the_claims(kept):
    """And so does one whose weights are not those of the exact error."""
    part = kept["aggregation"]
    rows = by_setting(part)
    equal, unequal = (rows["even", FREE, kind] for kind in ("equal", "zipf"))
    assert in_errors({**unequal, "exact": equal["exact"]}, part) > 100 * SIGMAS
    for (features, name, kind), row in rows.items():
        if features == "even" and kind == "zipf" and (name == FREE or name not in SHOWN):
            assert in_errors(row, part) < SIGMAS
            larger = {**row, "measured": [1.025 * value for value in row["measured"]]}
            assert in_errors(larger, part) > SIGMAS, name


def test_the_share_is_the_schemes_and_makes_the_servers_epsilon():
    """ε of the server is the one asked for over the root of the noise's share."""
    for epsilon in (0.5, 2.0, 4.0, 4.39, 4.41, 8.0):
        for letters in (2, 3, 16):
            found, coder = _point(epsilon, letters), JoPEQ(epsilon=epsilon, rate=math.log2(letters))
            own = 0.0 if coder.noise is None else coder.noise.variance
            assert found["share"] == pytest.approx(own / coder.target.noise.variance, abs=1e-12)
            assert (found["coarseness"] >= BOUNDARY) == (coder.noise is None)
            if own and found["share"] > 0.05:
                asked = epsilon / math.sqrt(found["share"])
                assert found["exact"] == pytest.approx(asked, rel=1e-5)


def test_what_the_paper_says_in_passing(parts):
    """Chebyshev's share, the density without a bound, laws of noise, and eavesdroppers."""
    part = parts["mechanisms"]
    shares = {row["update"]: row["Z"] for row in part["scale"]}
    assert shares["worst case"] == pytest.approx(8 / 9, abs=1e-3)
    assert shares["normal"] == pytest.approx(math.erf(3 / math.sqrt(2)), abs=2e-3)
    flat, plane = (row["ratios"] for row in part["elliptical"][:2])
    assert flat == pytest.approx([4.0 * (1.0 - radius) for radius in part["radii"]], rel=1e-5)
    assert plane == sorted(plane)
    for row in part["laws"]:
        assert row["proven"] is None or row["proven"] > row["epsilon"]
    for row in part["network"]:
        assert 0.8 * row["epsilon"] < row["network"] < 1.02 * row["server"]  # coarse quadrature
        assert row["mass"] == pytest.approx(1.0, abs=1e-3)


def test_eavesdroppers_count_letters_as_often_as_computed(private, dither_words):
    """200,000 samples of each of two inputs: five standard errors of every log-ratio."""
    coder = JoPEQ(epsilon=2.0, rate=1.0, lattice="A2", gamma=4.0)
    chances = letter_chances(coder, np.array([[1.0, 0.0], [-1.0, 0.0]]), rings=200)
    for index, x in enumerate((1.0, -1.0)):
        name, count = f"letters {index}", 200_000
        dither = coder.cells.dither(dither_words(name, count, 2))
        noisy = np.array([x, 0.0]) + coder.noise.sample(private(name), 0, count) + dither
        found = np.bincount(coder.codebook.quantize(noisy)[0], minlength=4) / count
        expected = chances[index] / chances[index].sum()
        assert (np.abs(found - expected) < 5 * np.sqrt(expected / count) + 1e-3).all()


@pytest.fixture(scope="module", params=[(name, split) for name in NAMES for split in SPLITS])
def problem(request):
    pytest.importorskip("sklearn")
    return build(*request.param)


def test_the_minimum_is_a_minimum(problem):
    rng = np.random.default_rng(0)
    start = rng.normal(size=problem.parameters) / 10
    found = optimize.minimize(problem.loss, start, options={"gtol": 1e-7})
    assert problem.loss(problem.optimum) <= found.fun + 1e-12
    assert np.abs(found.x - problem.optimum).max() < 1e-3
