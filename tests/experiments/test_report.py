"""The page is read back with an HTML parser; tests/browser clicks through it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jopeq.errors import DataError
from jopeq.experiments.report import report, write_report

KEPT = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def whole(read_html):
    text, problems = report(KEPT)
    return read_html(text), text, problems


def test_all_that_was_kept_is_on_the_page(whole):
    page, text, problems = whole
    assert problems == []
    assert {"table1", "fig2", "fig3", "theory", "configurations"} <= set(page.ids)
    assert page.figures >= 8
    assert text.count("<svg") == page.figures
    assert "jopeq ε=4 R=1" in {row[0] for table in page.tables for row in table}
    assert page.ids.index("table1") < page.ids.index("fig2") < page.ids.index("theory")


def test_numbers_are_those_of_the_files(whole):
    runs = [json.loads(line) for line in (KEPT / "table1.jsonl").read_text().splitlines()]
    mine = [r for r in runs if (r["label"], r["model"], r["rounds"]) == ("jopeq", "linear", 95)]
    mean = sum(100 * run["test_accuracy"] for run in mine) / len(mine)
    table = next(t for t in whole[0].tables if t[1][:3] == ["none", "cnn", "mnist"])
    row = next(row for row in table if row[:4] == ["jopeq", "linear", "mnist", "95"])
    assert row[4] == str(len(mine))
    assert row[5].startswith(f"{mean:.2f} ± ")
    assert row[11] == f"{mine[0]['epsilon']:.4g}" == "10.12"


def test_every_row_names_a_configuration_with_versions(whole):
    page = whole[0]
    for table in page.tables[:-1]:
        assert table[0][-1] == "configuration"
        assert all(row[-1].startswith("c") for row in table[1:])
    settings = [row[2] for row in page.tables[-1][1:]]
    assert any("torch = 2." in text and "lr = 0.1" in text for text in settings)
    assert all("torch = " in text or "numpy = " in text for text in settings)


def test_the_page_is_valid_enough_and_needs_nothing_else(whole):
    page, text, _ = whole
    assert len(page.ids) == len(set(page.ids))
    inner = [link.removeprefix("#") for link in page.links]
    assert inner
    assert set(inner) <= set(page.ids)
    assert all(a.startswith(("#", "data:image/png;base64,")) for a in page.addresses)
    assert "@import" not in text
    assert "default-src 'none'" in text


def test_a_half_written_line_is_left_out_and_named(some_results, read_html):
    with (some_results / "table1.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"label": "jopeq", "sche')
    text, problems = report(some_results)
    assert len(problems) == 1
    last = len((some_results / "table1.jsonl").read_text().splitlines())
    assert f"table1.jsonl, line {last}: not JSON" in problems[0]
    assert problems[0] in read_html(text).text


def test_wrong_types_cost_one_section_and_no_other(some_results, read_html):
    record = json.loads((KEPT / "fig3.jsonl").read_text().splitlines()[0])
    (some_results / "fig3.jsonl").write_text(json.dumps({**record, "test_accuracy": "high"}) + "\n")
    text, problems = report(some_results)
    assert [problem.split(":")[0] for problem in problems] == ["fig3.jsonl"]
    assert {"table1", "fig2"} <= set(read_html(text).ids)


def test_nothing_to_show_is_an_error(tmp_path):
    with pytest.raises(DataError, match="holds nothing to report"):
        report(tmp_path)
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(DataError, match=r"empty\.jsonl: empty"):
        report(tmp_path)
    with pytest.raises(DataError, match="is no folder"):
        report(tmp_path / "nowhere")


def test_the_page_is_written_whole_or_not_at_all(tmp_path):
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n')
    out = tmp_path / "deep" / "report.html"
    assert write_report(tmp_path, out) == []
    before = out.read_text()
    (tmp_path / "other.jsonl").unlink()
    with pytest.raises(DataError):
        write_report(tmp_path, out)
    assert out.read_text() == before
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(DataError, match="cannot be written"):
        write_report(tmp_path, tmp_path / "deep")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "other.jsonl"]


def test_a_page_that_cannot_replace_the_old_one_leaves_it(tmp_path, monkeypatch):
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n')
    out = tmp_path / "deep" / "report.html"
    write_report(tmp_path, out)
    before = out.read_text()
    (tmp_path / "other.jsonl").write_text('{"a": 2}\n')

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(DataError, match="no space left"):
        write_report(tmp_path, out)
    assert out.read_text() == before
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]
