"""Sections of results that are there in part, or spoilt; the page is read back."""

import json
from pathlib import Path

import pytest

from jopeq.experiments.report import report

KEPT = Path(__file__).parents[2] / "results"


def test_a_figure_that_cannot_be_drawn_is_named(some_results, read_html):
    lines = (KEPT / "fig3.jsonl").read_text().splitlines()
    short = json.loads(lines[0])
    short["validation"] = short["validation"][:-1]
    (some_results / "fig3.jsonl").write_text("\n".join([json.dumps(short), *lines[1:]]) + "\n")
    text, problems = report(some_results)
    assert [problem.split(":")[0] for problem in problems] == ["figure fig3"]
    assert "fig3" in read_html(text).ids


def test_a_figure_of_some_runs_shows_those(some_results):
    lines = (some_results / "fig2.jsonl").read_text().splitlines()
    (some_results / "fig2.jsonl").write_text("\n".join(lines[:3]) + "\n")
    text, problems = report(some_results)
    assert problems == []
    assert text.count("<svg") == 1


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"dither": 3}'])
def test_a_spoilt_theory_file_is_named(some_results, content, read_html):
    (some_results / "theory.json").write_text(content)
    text, problems = report(some_results)
    assert len(problems) == 1
    assert problems[0].startswith("theory.json: ")
    assert "theory" not in read_html(text).ids


def test_a_part_of_the_theory_is_shown(some_results, read_html):
    parts = json.loads((KEPT / "theory.json").read_text())
    (some_results / "theory.json").write_text(json.dumps({"aggregation": parts["aggregation"]}))
    text, problems = report(some_results)
    assert len(problems) == 5
    assert all("which is not there" in problem for problem in problems)
    assert "theory" in read_html(text).ids


def test_a_part_of_the_theory_that_lacks_something_costs_its_figure_only(some_results, read_html):
    parts = json.loads((KEPT / "theory.json").read_text())
    del parts["dither"]["lattices"]
    parts["convergence"]["rows"] = []  # a figure that looks for a row
    (some_results / "theory.json").write_text(json.dumps(parts))
    text, problems = report(some_results)
    assert len(problems) == 2
    assert problems[0].startswith("figure theory-dither: cannot be drawn")
    assert "theory.json, part 'dither': it lacks 'lattices': delete it and run" in problems[0]
    assert "theory.json, part 'convergence': it is not as it was kept" in problems[1]
    assert "theory" in read_html(text).ids
    assert "theory-aggregation" in text


def test_unknown_records_become_a_plain_table(tmp_path, read_html):
    (tmp_path / "other.jsonl").write_text('{"a": 1, "b": [1, 2], "c": "x"}\n{"a": null, "d": 2}\n')
    page = read_html(report(tmp_path)[0])
    assert page.tables[0] == [
        ["a", "b", "c", "d", "configuration"],
        ["1", "1, 2", "x", "–", "c1"],
        ["–", "–", "–", "2", "c1"],
    ]


def test_a_shorter_run_of_the_same_seed_takes_no_curve_away(some_results, monkeypatch):
    shown = []
    monkeypatch.setattr(
        "jopeq.experiments.mnist_report.save_fig3",
        lambda runs, path: shown.append(runs) or path.write_text("<svg viewBox='0 0 1 1'></svg>"),
    )
    lines = (KEPT / "fig3.jsonl").read_text().splitlines()
    short = json.dumps({**json.loads(lines[0]), "rounds": 2})
    for more in ([], [short]):
        (some_results / "fig3.jsonl").write_text("\n".join([*lines, *more]) + "\n")
        report(some_results)
    assert shown[0]
    assert shown[0] == shown[1]
