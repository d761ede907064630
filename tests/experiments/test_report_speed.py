"""The benchmarks on the page are those of the file, and of docs/speed.md."""

import json

import pytest

from jopeq.experiments import speed_tables
from jopeq.experiments.report import report
from jopeq.experiments.report_html import Value
from jopeq.experiments.report_speed import sortable


def test_every_table_of_the_benchmarks_is_shown(tmp_path, kept_speed, read_html):
    (tmp_path / "bench.json").write_text(json.dumps(kept_speed))
    text, problems = report(tmp_path)
    page = read_html(text)
    assert problems == []
    assert page.figures == text.count("<svg") == 1
    for shown, found in zip(speed_tables.all_tables(kept_speed), page.tables[:-1], strict=True):
        assert found[0] == [*shown.head, "configuration"]
        assert [tuple(row[:-1]) for row in found[1:]] == list(shown.rows)
    settings = [row[2] for row in page.tables[-1][1:]]
    assert f"processor = {kept_speed['machine']['processor']}" in settings[0]
    assert all(name in page.text for name in kept_speed["peers"]["missing"])
    if "gpu" in kept_speed:
        of_gpu = [table for table in page.tables if "encode G/s" in table[0]]
        assert {row[-1] for row in of_gpu[0][1:]} == {"c2"}
        assert kept_speed["gpu"]["device"] in settings[1]


def test_a_part_of_the_benchmarks_is_named(some_results, kept_speed):
    del kept_speed["threads"]
    (some_results / "bench.json").write_text(json.dumps(kept_speed))
    _, problems = report(some_results)
    assert problems == ["bench.json: cannot be shown (KeyError: 'threads')"]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        *(("0.33", 0.33), ("9.9e-05", 9.9e-05), ("1,295", 1295), ("84%", 0.84), ("10⁸", 1e8)),
        *(("0.53×", 0.53), ("48 s", 48), ("85 ms", 0.085), ("< 0.1 ms", 1e-4), ("12,345", 12345)),
    ],
)
def test_cells_sort_by_their_number(text, key):
    found = sortable(text)
    assert isinstance(found, Value)
    assert (found.text, found.key) == (text, pytest.approx(key))


@pytest.mark.parametrize("text", ["sdq", "yes", "jopeq A2", "10 things", "t+sdq", ""])
def test_words_are_words(text):
    assert sortable(text) == text


def test_what_is_missing_sorts_last():
    assert sortable("–") is None
