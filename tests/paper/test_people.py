"""``paper.people``: jobs, runs that are kept, recipes, and the page."""

from dataclasses import replace

import pytest
import torch

from jopeq_lab.training.data import Dataset
from paper import people, people_page
from paper.runs import read_records


@pytest.fixture
def small():
    generator = torch.Generator().manual_seed(3)
    labels = torch.randint(0, 10, (300,), generator=generator)
    images = 0.2 * torch.rand(300, 1, 20, 20, generator=generator)
    images[torch.arange(300), 0, labels, :] += 0.8
    return Dataset("mnist", images[:200], labels[:200], images[200:], labels[200:], 10)


def jobs(folder):
    yield from people.sphere_jobs(folder, 1 << 12)
    yield from people.entries_jobs(folder)
    for data in ("mnist", "cifar10"):
        yield from people.sum_jobs(data, folder)


def test_runs_are_kept_once_and_make_a_page(tmp_path, small, capsys):
    wanted = {
        label: replace(config, people=40, rounds=2, examples=1)
        for label, config in jobs(tmp_path)
        if ("50,000" in label and "hog" in label) or label.startswith("sum, linear, 6")
    }
    for _ in range(2):  # the second time finds all of them
        people.run_jobs(wanted.items(), small, tmp_path, [0], "cpu")
    kept = read_records(tmp_path / people.FILE, people.PeopleRun)
    assert len(kept) == len({run.label for run in kept}) > 8
    assert {run.label for run in kept} <= wanted.keys()
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "people.md"
    page.write_text(f"{people_page.TRAINED}\n<!-- end -->\n", "utf-8")
    people_page.write(tmp_path, page.parent)
    page = page.read_text("utf-8")
    assert all(people.sphere_label("hog", 50_000, e)[:6] in page for e in people.EPSILONS)
    assert (tmp_path / "docs" / "figures" / "person-level.svg").stat().st_size > 1000
