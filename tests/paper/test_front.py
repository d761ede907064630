"""The front door quotes the kept runs, and its picture is drawn."""

import json
from pathlib import Path
from statistics import fmean, stdev

import pytest

from paper import front, people
from paper.kept_runs import read_records

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "label",
    [
        "sphere, hog, 50,000 people, ε = 4",
        "none, hog, 50,000 people",
        "sum, hog, 50,000 people, ε = 4",
    ],
)
def test_the_front_door_has_the_numbers_of_the_kept_runs(label):
    runs = read_records(ROOT / "results" / people.FILE, people.PeopleRun)
    found = [run.test_accuracy for run in runs if (run.label, run.data) == (label, "mnist")]
    assert f"{100 * fmean(found):.1f}%" in README


@pytest.mark.parametrize("label", ["response", "none"])
def test_the_front_door_has_the_papers_numbers(label, results):
    """At one bit: MNIST with a CNN and ε = 4 per entry, CIFAR-10 at the best rate and ε = 3."""
    mnist = results.table1.query("model == 'cnn' and label == @label")
    cifar = results.table2.query("label == @label and lr == 0.03 and nominal != 2")
    cifar = cifar[cifar.scheme.str.contains('"rate":1.0') | (label == "none")]
    for runs in (mnist, cifar):
        assert f"{100 * runs.test_accuracy.mean():.1f}%" in README, runs


@pytest.mark.parametrize(("label", "digits"), [("MNIST", 2), ("cancer", 1)])
@pytest.mark.parametrize("baseline", [None, "none"])
def test_pages_have_the_hospitals_numbers(label, digits, baseline):
    """At ε = 1 for a patient, and without noise."""
    lines = (ROOT / "results" / "hospitals.jsonl").read_text("utf-8").splitlines()
    found = [
        100 * run["test_accuracy"]
        for run in map(json.loads, lines)
        if (run["label"], run.get("baseline")) == (label, baseline)
        and json.loads(run["scheme"])[1]["epsilon"] == 1
    ]
    told = f"{fmean(found):.{digits}f} ± {stdev(found):.{digits}f}%"
    for page in ("README.md", "docs/index.md", "docs/hospitals.md"):
        assert told in (ROOT / page).read_text("utf-8"), (page, told)


def test_the_picture_is_drawn(tmp_path):
    runs = read_records(ROOT / "results" / people.FILE, people.PeopleRun)
    front.draw(runs, tmp_path / "front.png")
    assert (tmp_path / "front.png").stat().st_size > 10_000
    assert {run.label for run in runs} >= set(front.POINTS)
