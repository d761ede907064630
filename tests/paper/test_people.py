"""``paper.people``: jobs, runs that are kept, recipes, and the page."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from jopeq.federated.config import PeopleConfig
from jopeq.federated.data import Dataset
from jopeq.federated.runs import add_record, read_records
from jopeq.schemes.sphere import Sphere
from paper import people, people_page
from paper.pages import ClaimError


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


def test_every_job_has_a_name_of_its_own(tmp_path):
    labels = [job.label for job in jobs(tmp_path)]
    assert len(labels) == len(set(labels))
    assert {label.partition(",")[0] for label in labels} == {
        *("sphere", "response", "central", "sum", "none"),
    }


def test_runs_are_kept_once_and_make_a_page(tmp_path, small, capsys):
    wanted = [
        people.Job(job.label, replace(job.config, people=40, rounds=2, examples=1))
        for job in jobs(tmp_path)
        if ("50,000" in job.label and "hog" in job.label) or job.label.startswith("sum, linear, 6")
    ]
    for _ in range(2):  # the second time finds all of them
        people.run_jobs(wanted, small, tmp_path, 1, "cpu", np.inf)
    kept = read_records(tmp_path / people.FILE, people.PeopleRun)
    assert len(kept) == len({run.key for run in kept}) > 8
    assert {run.label for run in kept} <= {job.label for job in wanted}
    people_page.write(tmp_path, tmp_path / "docs")
    page = (tmp_path / "docs" / "person-level.md").read_text()
    assert all(people.sphere_label("hog", 50_000, e)[:6] in page for e in people.EPSILONS)
    assert (tmp_path / "docs" / "figures" / "person-level.png").stat().st_size > 1000


def test_the_search_keeps_what_it_finds_and_sees_no_test_image(tmp_path, small, monkeypatch):
    def made(clip, **settings):
        return PeopleConfig(
            scheme=people.Surrogate(Sphere(epsilon=8.0, clip=clip)), people=60, **settings
        )

    seen = []
    validated = people._validated
    monkeypatch.setattr(
        people,
        "_validated",
        lambda dataset, *others: (
            seen.append(len(dataset.test_labels)) or validated(dataset, *others)
        ),
    )
    settings = {"clip": 0.5, "rounds": 2, "features": "pixels", "server_lr": 5.0}
    found = [("sphere, hog, 50,000 people, ε = 8", made, lambda source: settings)]
    monkeypatch.setattr(people, "_searches", lambda data: iter(found))
    people.tune(small, tmp_path, 2, "cpu", np.inf)
    assert seen == [0, 0]
    assert people.settings_of(found[0][0], tmp_path) == settings
    assert people.settings_of("sphere, unknown", tmp_path) == people.DEFAULT


def test_attacks_become_a_table_if_they_fail(tmp_path):
    facts = people.Attacked(
        "sphere, ε = 8", "dlg", "[]", 1.0, [0.1, 0.4], [0.2, 0.1], ["spent"] * 2
    )
    with (tmp_path / "a.jsonl").open("w") as file:
        add_record(file, facts)
    (read,) = read_records(tmp_path / "a.jsonl", people.Attacked)
    people_page.check_attacks([read])
    page = tmp_path / "page.md"
    page.write_text(f"before\n{people_page._START}\n{people_page._END}\nafter\n")
    for _ in range(2):
        people_page.fill_in(page, people_page.attacks_table([read]))
    assert page.read_text().count("sphere, ε = 8") == 1
    with pytest.raises(ClaimError, match="sphere, ε = 8, dlg"):
        people_page.check_attacks([replace(read, ssim=[0.1, 0.6])])
