"""The page is read back with an HTML parser; tests/browser clicks through it."""

from __future__ import annotations

import json
import math
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from jopeq.errors import DataError
from jopeq.experiments.report import report, write_report
from jopeq.experiments.report_html import Link, Section, Table, Value, html_page

KEPT = Path(__file__).parents[2] / "results"
VOID = {"meta", "img", "br", "hr", "link", "input"}


class Page(HTMLParser):
    """Tags must nest; ids, links, tables and addresses are kept."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.addresses: list[str] = []
        self.figures = 0
        self.tables: list[list[list[str]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "a":
            self.links.append(found["href"])
        self.addresses += [found[key] for key in ("src", "href") if key in found]
        self.figures += tag == "figure"
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += data


@pytest.fixture(scope="module")
def whole():
    text, problems = report(KEPT)
    return Page(text), text, problems


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


def test_the_page_is_valid_enough_and_needs_nothing_else(whole):
    page, text, _ = whole
    assert len(page.ids) == len(set(page.ids))
    inner = [link.removeprefix("#") for link in page.links]
    assert inner
    assert set(inner) <= set(page.ids)
    assert all(a.startswith(("#", "data:image/png;base64,")) for a in page.addresses)
    assert "@import" not in text
    assert "default-src 'none'" in text


def test_words_from_files_are_only_words():
    table = Table(("<b>",), [("<script>alert(1)</script>",)], "<i>")
    text = html_page("<title>", "<p>", [Section("n", "<h1>", tables=[table])], ["<u>"])
    assert "<script>alert" not in text
    assert Page(text).tables == [[["<b>"], ["<script>alert(1)</script>"]]]


def test_cells_sort_by_value_and_missing_ones_say_so():
    row = (1, 2.5, None, Value("∞", math.inf), Value("?", None), Link("c1", "x"), True, 12345.0)
    text = html_page("t", "", [Section("n", "n", tables=[Table("abcdefgh", [row], "c")])], [])
    for part in ('data-key="1.0">1<', 'data-key="2.5"', "data-missing>–", 'data-key="inf">∞'):
        assert part in text
    assert "data-missing>?" in text
    assert ">yes<" in text
    assert ">12,345<" in text


@pytest.fixture
def some(tmp_path):
    """A copy with few files, to be spoilt."""
    folder = tmp_path / "results"
    folder.mkdir()
    for name in ("table1.jsonl", "fig2.jsonl"):
        shutil.copy(KEPT / name, folder)
    return folder


def test_a_half_written_line_is_left_out_and_named(some):
    with (some / "table1.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"label": "jopeq", "sche')
    text, problems = report(some)
    assert len(problems) == 1
    last = len((some / "table1.jsonl").read_text().splitlines())
    assert f"table1.jsonl, line {last}: not JSON" in problems[0]
    assert problems[0] in Page(text).text


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[1, 2]", "not an object"),
        ('{"label": "none"}', "lacks model"),
        ("nonsense", "not JSON"),
        ("[" * 5000, "not JSON"),
    ],
)
def test_lines_that_are_no_runs_are_left_out(some, line, said):
    with (some / "fig2.jsonl").open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    _, problems = report(some)
    last = len((some / "fig2.jsonl").read_text().splitlines())
    assert len(problems) == 1
    assert f"fig2.jsonl, line {last}: {said}" in problems[0]


def test_wrong_types_cost_one_section_and_no_other(some):
    record = json.loads((KEPT / "fig3.jsonl").read_text().splitlines()[0])
    (some / "fig3.jsonl").write_text(json.dumps({**record, "test_accuracy": "high"}) + "\n")
    text, problems = report(some)
    assert [problem.split(":")[0] for problem in problems] == ["fig3.jsonl"]
    assert {"table1", "fig2"} <= set(Page(text).ids)


def test_a_figure_that_cannot_be_drawn_is_named(some):
    lines = (KEPT / "fig3.jsonl").read_text().splitlines()
    short = json.loads(lines[0])
    short["validation"] = short["validation"][:-1]
    (some / "fig3.jsonl").write_text("\n".join([json.dumps(short), *lines[1:]]) + "\n")
    text, problems = report(some)
    assert [problem.split(":")[0] for problem in problems] == ["figure fig3"]
    assert "fig3" in Page(text).ids


def test_a_figure_of_some_runs_shows_those(some):
    lines = (some / "fig2.jsonl").read_text().splitlines()
    (some / "fig2.jsonl").write_text("\n".join(lines[:3]) + "\n")
    text, problems = report(some)
    assert problems == []
    assert text.count("<svg") == 1


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"dither": 3}'])
def test_a_spoilt_theory_file_is_named(some, content):
    (some / "theory.json").write_text(content)
    text, problems = report(some)
    assert len(problems) == 1
    assert problems[0].startswith("theory.json: ")
    assert "theory" not in Page(text).ids


def test_a_part_of_the_theory_is_shown(some):
    parts = json.loads((KEPT / "theory.json").read_text())
    (some / "theory.json").write_text(json.dumps({"aggregation": parts["aggregation"]}))
    text, problems = report(some)
    assert len(problems) == 5
    assert all("which is not there" in problem for problem in problems)
    assert "theory" in Page(text).ids


def test_unknown_records_become_a_plain_table(tmp_path):
    (tmp_path / "other.jsonl").write_text('{"a": 1, "b": [1, 2], "c": "x"}\n{"a": null, "d": 2}\n')
    page = Page(report(tmp_path)[0])
    assert page.tables[0] == [
        ["a", "c", "d", "configuration"],
        ["1", "x", "–", "c1"],
        ["–", "–", "2", "c1"],
    ]


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
