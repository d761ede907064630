import json
from pathlib import Path

import pytest

from jopeq.experiments import results_page
from jopeq.experiments.results_page import write_page

KEPT = Path(__file__).parents[2] / "results"


def test_the_page_is_made_of_what_is_there(tmp_path):
    results, page = tmp_path / "results", tmp_path / "docs" / "results.md"
    results.mkdir()
    page.parent.mkdir()
    write_page(results, page, page.parent / "figures")
    assert "## Table I" not in page.read_text()


@pytest.mark.skipif(not KEPT.exists(), reason="no kept runs")
def test_the_committed_runs_make_the_committed_tables(tmp_path):
    page = tmp_path / "results.md"
    write_page(KEPT, page, tmp_path / "figures")
    committed = KEPT.parent / "docs" / "results.md"
    assert page.read_text() == committed.read_text()


@pytest.mark.skipif(not KEPT.exists(), reason="no kept runs")
def test_our_accuracies_are_not_below_the_authors_code():
    """Not more than 0.3 points below: 2.5 standard errors of three runs' mean against one run."""
    from jopeq.experiments.mnist import AUTHORS_CODE, MODELS
    from jopeq.experiments.over_seeds import grouped, over_seeds
    from jopeq.experiments.runs import read

    cells = grouped(read(KEPT / "table1.jsonl"), lambda run: (run.label, run.model))
    for label, theirs in AUTHORS_CODE.items():
        for model, accuracy in zip(MODELS, theirs, strict=True):
            ours = over_seeds([run.test_accuracy for run in cells[label, model]])
            assert ours.count >= 3
            assert ours.mean >= accuracy - 0.003, (label, model)


def test_figure_3_takes_runs_from_both_files(tmp_path, monkeypatch):
    line = json.loads((KEPT / "fig3.jsonl").read_text().splitlines()[0])
    for name, label in (("table1", "none"), ("fig3", "mvu")):
        text = json.dumps({**line, "label": label})
        (tmp_path / f"{name}.jsonl").write_text(text + "\n")
    shown = []
    monkeypatch.setattr(results_page, "save_fig3", lambda runs, path: shown.extend(runs))
    write_page(tmp_path, tmp_path / "results.md", tmp_path / "figures")
    assert {run.label for run in shown} == {"none", "mvu"}
