"""The page of the kept results: its sections and figures."""

import math
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from jopeq.errors import DataError
from paper import mnist
from paper import results as page
from paper.results import SECTIONS

ROOT = Path(__file__).parents[2]


def test_every_figure_of_the_page_is_drawn(results, tmp_path, monkeypatch):
    """But neither laid out nor rendered, which takes longest: ``test_sections…`` renders one."""
    for name in ("savefig", "draw_without_rendering"):
        monkeypatch.setattr(Figure, name, lambda self, *_, **__: None)
    assert results.sections == list(SECTIONS)
    page.draw(results, tmp_path)
    text = page.paper_page(results, "")
    assert {path.name for path in tmp_path.iterdir() if "-phone" not in path.name} == {
        part.split(")")[0] for part in text.split("(figures/")[1:]
    }


def test_sections_whose_runs_are_missing_are_left_out(results, tmp_path):
    few = tmp_path / "results"
    few.mkdir()
    with pytest.raises(DataError, match=few.name):
        page.run(few, tmp_path / "docs" / "paper.md")
    assert not (tmp_path / "docs").exists()
    shutil.copy(ROOT / "results" / "fig2.jsonl", few)
    lines = (ROOT / "results" / "table1.jsonl").read_text().splitlines(keepends=True)
    (few / "table1.jsonl").write_text("".join(lines[:40]))  # some rows have no run
    left_out = page.run(few, tmp_path / "docs" / "paper.md")
    assert left_out == [*(name for name in SECTIONS if name != "fig2"), "theory"]
    headings = [line for line in (tmp_path / "docs" / "paper.md").read_text().splitlines()
                if line.startswith("#")]  # fmt: skip
    differs = "## Where this differs from the paper { #differs }"
    settings = "## What comes from the paper, and what from its code { #settings }"
    figure2 = "## Figure 2: SNR against rate"
    assert headings == ["# The paper", figure2, "## Any lattice", differs, settings]


def test_figure_3_compares_runs_of_one_seed():
    rows = [("none", 0, [0.5, 0.9]), ("none", 1, [0.6, 0.8]), ("sdq", 1, [0.5, 0.8])]
    rows.append(("sdq", 0, [0.25, 0.85]))
    runs = pd.DataFrame(rows, columns=["label", "seed", "validation"])
    assert mnist.apart_from_none(runs, 0, 1).loc["sdq"].tolist() == pytest.approx([-25, -10])
    assert mnist.apart_from_none(runs, 0, None).loc["sdq"].tolist() == pytest.approx([-15, -5])


def test_our_accuracies_are_not_below_the_authors_code(results):
    """Within two standard errors of three runs' mean against one run, and within 0.3 points."""
    assert (results.table1.groupby(["label", "model"])["seed"].nunique() >= 3).all()
    for model in mnist.MODELS:
        gaps = mnist.above_the_code(results.table1, model)
        assert (gaps >= -2.0 * mnist.difference_error(results.table1, model)[gaps.index]).all()
        assert (gaps >= -0.3).all()


def test_scaling_every_tensor_by_itself_gives_the_codes_snr_of_laplace():
    """The numbers that Table I's note on SNR quotes: 7,840 weights and ten biases, Gaussian."""
    draws, count = np.random.default_rng(7), 400_000
    biases, noise = draws.standard_normal((count, 10)), draws.laplace(0.0, 0.5, (count, 10))
    for centred, quoted in ((biases, -10.7), (biases - biases.mean(1, keepdims=True), -10.1)):
        units = 9.0 * np.square(centred).mean(1)
        ratios = centred.var(1, ddof=1) / (units * noise.var(1, ddof=1))
        # five standard errors are 0.04 dB, rounding is another 0.05
        found = 20 * math.log10((1 / 4.5 + ratios.mean()) / 2)
        assert found == pytest.approx(quoted, abs=0.09)
