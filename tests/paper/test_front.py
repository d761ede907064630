"""README and choose-a-scheme quote the kept runs, and the picture of the front page is drawn."""

import json
from pathlib import Path
from statistics import fmean

from jopeq.lab.attacks.similarity import RECOVERED
from jopeq.lab.training.runs import read_records
from paper import front, people

ROOT = Path(__file__).parents[2]


def words(page):
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


def percent(label):
    runs = read_records(ROOT / "results" / people.FILE, people.PeopleRun)
    found = [run.test_accuracy for run in runs if (run.label, run.data) == (label, "mnist")]
    return f"{100 * fmean(found):.1f}%"


def test_the_numbers_of_the_front_door_are_the_kept_ones():
    sphere = percent("sphere, hog, 50,000 people, ε = 4")
    none = percent("none, hog, 50,000 people")
    many = percent("sum, hog, 50,000 people, ε = 4")
    summed = percent("sum, linear, 6,000 people of 8, ε = 4, 8 bits")
    central = percent("central, linear, 6,000 people of 8, ε = 4")
    readme, choose = words("README.md"), words("docs/choose-a-scheme.md")
    assert f"reaches {sphere} on MNIST ({none} without privacy)" in readme
    trusted = f"A trusted server that adds the noise itself reaches {central}"
    assert f"for the person: {summed}. {trusted}" in readme
    assert f"in secure sums of 1,515 reach {many}." in readme
    for page in (readme, choose):
        assert f"{sphere} at ε = 4" in page
        assert f"{many} at ε = 4 (50,000 people); {summed} at ε = 4 (6,000 people" in page
    kept = (ROOT / "results" / people.ATTACKS).read_text(encoding="utf-8")
    attacked = [json.loads(line) for line in kept.splitlines()]
    attacked = [one for one in attacked if one["method"] == "adaptive"]  # the strongest
    hits = dict.fromkeys((one["label"] for one in attacked), 0)
    for one in attacked:
        found = sum(value > RECOVERED for value in one["ssim"])
        hits[one["label"]] = max(hits[one["label"]], found)
    count = len(attacked[0]["ssim"])
    assert hits["sphere, ε = 8"] == hits["sphere, ε = 2"] == 0
    assert f"**0 of {count} images.**" in readme
    assert f"they rebuild {hits['raw']} of {count}" in readme
    assert f"| {hits['response, ε = 4 per entry']} of {count} images |" in readme


def test_the_picture_is_drawn(tmp_path):
    runs = read_records(ROOT / "results" / people.FILE, people.PeopleRun)
    front.draw(runs, tmp_path / "front.png")
    assert (tmp_path / "front.png").stat().st_size > 10_000
    assert {run.label for run in runs} >= set(front.POINTS)
