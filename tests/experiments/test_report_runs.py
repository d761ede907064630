"""Runs of several seeds on a page: what makes a row, and what is a mean in it."""

import json
import math

import pytest

from jopeq.experiments.report import report
from jopeq.experiments.report_html import Value
from jopeq.experiments.report_records import Configurations
from jopeq.experiments.report_runs import run_tables, seed_groups

TORCH = {"lr": 0.1, "torch": "2.11.0+cu130"}


@pytest.fixture
def tables(mnist_run):
    """Changes of the kept run → table of means, table of runs, configurations and problems."""

    def make(*changes):
        problems, configurations = [], Configurations()
        runs = [mnist_run(**{"seed": seed, **some}) for seed, some in enumerate(changes)]
        groups = seed_groups(runs, "mine.jsonl", problems)
        means, each = run_tables(groups, "mine.jsonl", configurations)
        (known,) = configurations.section().tables
        rows = [dict(zip(means.headings, row, strict=True)) for row in means.rows]
        return rows, each.rows, [row[2] for row in known.rows], problems

    return make


def test_what_differs_between_seeds_is_averaged(tables):
    measured = ("bits_per_parameter", "bytes_per_client", "overload_rate", "test_accuracy")
    values = [(1.0, 100.0, 0.1, 0.8), (2.0, 200.0, 0.2, 0.9), (6.0, 600.0, 0.6, 1.0)]
    (row,), each, _, problems = tables(*(dict(zip(measured, v, strict=True)) for v in values))
    assert row["seeds"] == len(each) == 3
    assert row["bits per parameter"] == pytest.approx(3.0)
    assert row["bytes per client and round"] == pytest.approx(300.0)
    assert row["overload, %"] == pytest.approx(30.0)
    assert row["test accuracy, %"].text == "90.00 ± 10.00"
    assert problems == []


def test_the_largest_epsilon_holds_for_all_seeds(tables):
    (row,), *_ = tables({"epsilon_client": 5.0}, {"epsilon_client": 7.0}, {"epsilon_client": 6.0})
    assert row["ε of a client"] == Value("7", 7.0)
    (row,), *_ = tables({"epsilon_client": 5.0}, {"epsilon_client": None})
    assert row["ε of a client"].key == math.inf


def test_runs_of_several_versions_make_one_row_that_names_them(tables):
    newer = {**TORCH, "jopeq": "0.1.0", "numpy": "2.4.6", "torch": "2.13.0+cpu", "device": "cpu"}
    unsaid = {"tf32": False, "centered": False}  # as it was before anybody recorded it
    rows, each, settings, problems = tables(
        {"settings": TORCH}, {"settings": newer | unsaid}, {"settings": newer | {"jopeq": "0.2.0"}}
    )
    assert [row["seeds"] for row in rows] == [3]
    assert problems == []
    told = settings[0]
    assert "lr = 0.1," in told
    assert "torch = 2.11.0+cu130 or 2.13.0+cpu" in told
    assert "jopeq = not recorded or 0.1.0 or 0.2.0" in told
    assert "tf32 = not recorded or false" in told
    assert len({row[-1].text for row in each}) == 3  # every run still leads to its own


@pytest.mark.parametrize("other", [{"lr": 0.2}, {"lr": 0.1, "tf32": True}])
def test_other_settings_make_another_row(tables, other):
    rows, *_ = tables({"settings": TORCH}, {"settings": {**TORCH, **other}})
    assert [row["seeds"] for row in rows] == [1, 1]


def test_a_run_written_twice_is_no_other_seed(tables):
    first, again, other = ({"seed": s, "test_accuracy": a} for s, a in ((0, 0.7), (0, 0.8), (1, 1)))
    (row,), each, _, problems = tables(first, again, other)
    assert row["seeds"] == len(each) == 2
    assert row["test accuracy, %"].text.startswith("90.00 ± ")  # the last one counts
    assert problems == [
        "mine.jsonl: more than one run of jopeq, linear, 2 rounds, seed 0: only the last one counts"
    ]


def test_a_run_written_twice_is_named_on_the_page(some_results, read_html):
    path = some_results / "table1.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, lines[0], lines[1], lines[1]]) + "\n")
    text, problems = report(some_results)
    first = json.loads(lines[0])
    (problem,) = problems
    assert problem.startswith(f"table1.jsonl: more than one run of {first['label']}, ")
    assert "and 1 more" in problem
    page = read_html(text)
    assert problem in page.text
    table = next(table for table in page.tables if "seed" in table[0])
    assert len(table) - 1 == len(lines)


def test_epsilons_are_rounded_up(tables):
    for epsilon, text in ((3.00049, "3.001"), (631296.2, "631,297")):
        (row,), *_ = tables({"epsilon_client": epsilon})
        assert row["ε of a client"] == Value(text, epsilon)
