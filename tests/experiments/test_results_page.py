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


def test_the_versions_are_those_of_the_runs(tmp_path):
    lines = {}
    for name, torch in (("table1", "3.1.4+cpu"), ("fig2", "2.7.0"), ("fig3", "3.1.0")):
        line = json.loads((KEPT / f"{name}.jsonl").read_text().splitlines()[0])
        lines[name] = {**line, "settings": {**line["settings"], "torch": torch}}

    def head(*names):
        for name in lines:
            kept = [json.dumps(lines[name])] if name in names else []
            (tmp_path / f"{name}.jsonl").write_text("\n".join(kept))
        return results_page._versions(
            {
                "Table I": results_page.read(tmp_path / "table1.jsonl"),
                "Figure 3": results_page.read(tmp_path / "fig3.jsonl"),
                "Figure 2": results_page.read(tmp_path / "fig2.jsonl"),
            }
        )

    both = " Table I and Figure 3 were run with PyTorch 3.1, Figure 2 with 2.7."
    assert head("table1", "fig2", "fig3") == both
    assert head("fig2") == " Figure 2 was run with PyTorch 2.7."
    assert head() == ""
    del lines["fig2"]["settings"]["torch"]
    assert head("fig2") == " Figure 2 was run with PyTorch (version not recorded)."


@pytest.mark.skipif(not KEPT.exists(), reason="no kept runs")
def test_our_accuracies_are_not_below_the_authors_code():
    """Not more than 0.3 points below: 2.5 standard errors of three runs' mean against one run."""
    from jopeq.experiments.mnist import AUTHORS_CODE, MODELS
    from jopeq.federated.runs import grouped, over_seeds, read

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


@pytest.mark.skipif(not KEPT.exists(), reason="no kept runs")
def test_the_readme_quotes_the_committed_runs():
    from jopeq.experiments.cifar import schemes_at
    from jopeq.experiments.mnist import MODELS
    from jopeq.federated.runs import read

    def percent(runs):
        return f"{100 * sum(run.test_accuracy for run in runs) / len(runs):.1f}%"

    digits = read(KEPT / "table1.jsonl")
    ours, plain = (
        [percent([run for run in digits if (run.label, run.model) == (label, model)])
         for model in MODELS]
        for label in ("response", "none")
    )  # fmt: skip
    images = [run for run in read(KEPT / "table2.jsonl") if run.settings["lr"] == 0.03]
    rows = schemes_at(1.0, 3.0)
    photos = {
        label: percent([run for run in images if run.scheme == rows[label].spec])
        for label in ("response", "none")
    }
    words = " ".join((KEPT.parent / "README.md").read_text().split())
    assert f"linear model reaches {ours[0]}, the MLP {ours[1]} and the CNN {ours[2]}" in words
    assert f"against {plain[0]}, {plain[1]} and {plain[2]} without compression" in words
    assert f"a CNN reaches {photos['response']} against {photos['none']}" in words
