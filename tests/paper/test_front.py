"""The front door quotes the kept runs, and its picture is drawn."""

from pathlib import Path
from statistics import fmean

import pytest

from paper import front, people
from paper.kept_runs import read_records

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "label",
    [
        "sphere, hog, 50,000 people, ε = 4",
        "none, hog, 50,000 people",
        "sum, hog, 50,000 people, ε = 4",
        "sum, linear, 6,000 people of 8, ε = 4, 8 bits",
    ],
)
def test_the_front_door_has_the_numbers_of_the_kept_runs(label):
    runs = read_records(ROOT / "results" / people.FILE, people.PeopleRun)
    found = [run.test_accuracy for run in runs if (run.label, run.data) == (label, "mnist")]
    assert f"{100 * fmean(found):.1f}%" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_picture_is_drawn(tmp_path):
    runs = read_records(ROOT / "results" / people.FILE, people.PeopleRun)
    front.draw(runs, tmp_path / "front.png")
    assert (tmp_path / "front.png").stat().st_size > 10_000
    assert {run.label for run in runs} >= set(front.POINTS)
