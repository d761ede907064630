"""The report, opened and clicked through."""

from __future__ import annotations

from pathlib import Path

import pytest

from jopeq.experiments.report import write_report

KEPT = Path(__file__).parents[2] / "results"
_COLUMN = """
Array.from(document.querySelectorAll('#table1 table')[0].tBodies[0].rows)
    .map(row => row.cells[5].textContent)"""
_SORT = "document.querySelectorAll('#table1 table')[0].tHead.rows[0].cells[5]"


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    out = tmp_path_factory.mktemp("report") / "report.html"
    write_report(KEPT, out)
    state = browser.open(out.as_uri())
    assert state == {"loaded": True, "complaints": [], "outside": []}
    return browser


def _numbers(texts):
    return [float(text.split(" ")[0]) for text in texts]


def test_figures_are_visible(page):
    sizes = page.run(
        "Array.from(document.querySelectorAll('figure svg')).map(figure => {"
        "const box = figure.getBoundingClientRect(); return [box.width, box.height]})"
    )
    assert len(sizes) >= 8
    assert all(width > 300 and height > 100 for width, height in sizes)


def test_a_click_sorts_and_another_turns_it_round(page):
    before = page.run(_COLUMN)
    assert _numbers(before) != sorted(_numbers(before))
    page.run(f"{_SORT}.querySelector('button').click()")
    assert _numbers(page.run(_COLUMN)) == sorted(_numbers(before))
    assert page.run(f"{_SORT}.getAttribute('aria-sort')") == "ascending"
    page.run(f"{_SORT}.querySelector('button').click()")
    assert _numbers(page.run(_COLUMN)) == sorted(_numbers(before), reverse=True)
    assert sorted(page.run(_COLUMN)) == sorted(before)
    assert page.heard() == {"complaints": [], "outside": []}


def test_missing_values_stay_last(page):
    column = (
        "Array.from(document.querySelectorAll('#table1 table')[0].tBodies[0].rows)"
        ".map(row => row.cells[10].textContent)"
    )
    button = "document.querySelectorAll('#table1 table')[0].tHead.rows[0].cells[10].firstChild"
    for _ in range(2):
        page.run(f"{button}.click()")
        values = page.run(column)
        count = values.count("–")
        assert count
        assert values[-count:] == ["–"] * count


def test_a_row_leads_to_its_configuration(page):
    page.run("document.querySelector('#table1 td a').click()")
    target = page.run("document.querySelector('tr:target').textContent")
    assert "torch = " in target
    assert "clients = 10" in target


def test_all_runs_unfold(page):
    page.run("document.querySelector('#table1 details summary').click()")
    assert page.run("document.querySelector('#table1 details table').offsetHeight > 100")


def test_light_and_dark(page):
    def look():
        return page.run(
            "[getComputedStyle(document.body).backgroundColor,"
            " getComputedStyle(document.querySelector('figure svg')).color]"
        )

    first = look()
    page.run("document.getElementById('theme').click()")
    second = look()
    assert first != second
    assert {first[0], second[0]} == {"rgb(255, 255, 255)", "rgb(22, 23, 28)"}
    assert page.heard() == {"complaints": [], "outside": []}
