"""The table of hospitals and the picture of the front page come from the kept runs."""

import re
from pathlib import Path
from statistics import fmean

import pytest
import torch

from jopeq.models import Features, Logistic, Number, Softmax
from jopeq_lab.attacks.similarity import RECOVERED
from jopeq_lab.training.descent import Descent, Server
from paper import hospitals, hospitals_page, people
from paper.runs import read_lines, read_records
from paper.words import ClaimError

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RUNS = read_lines(ROOT / "results" / hospitals.RUNS)
FITS = read_lines(ROOT / "results" / hospitals_page.FITS)
COSINE = "torch.optim.lr_scheduler.CosineAnnealingLR"
ROUNDS = hospitals.Job("MNIST, HOG", "shares", 1.0, 0)


def test_the_front_door_has_the_numbers_of_the_kept_runs(results):
    """Of people, of the paper (one bit, a CNN and ε = 4 per entry), and of the trust table."""
    runs = read_records(ROOT / "results" / people.FILE, people.PeopleRun)
    for label in ("sphere, hog, 50,000 people, ε = 4", "none, hog, 50,000 people",
                  "sum, hog, 50,000 people, ε = 4"):  # fmt: skip
        found = [run.test_accuracy for run in runs if (run.label, run.data) == (label, "mnist")]
        assert f"{100 * fmean(found):.1f}%" in README, label
    for label in ("response", "none"):
        runs = results.table1.query("model == 'cnn' and label == @label")
        assert f"{100 * runs.test_accuracy.mean():.1f}%" in README, label
    *_, fit = (one for one in FITS if one["bench"] == "mnist" and one.get("messages") == 7)
    assert f"{fit['accuracy']:.1f}% at ε = 1 (10 hospitals, 7 messages)" in README
    (attack,) = (
        run
        for run in read_lines(ROOT / "results" / people.ATTACKS)
        if (run["label"], run["method"]) == ("response, ε = 4 per entry", "adaptive")
    )
    assert '"rate":8.0' in attack["scheme"]
    found = [similarity > RECOVERED for similarity in attack["ssim"]]
    assert f"{sum(found)} of {len(found)} images (8 bits)" in README


def test_the_headline_is_the_kept_run():
    """The last one of seven messages: later lines of the file replace earlier ones."""
    *_, found = (one for one in FITS if one["bench"] == "mnist" and one.get("messages") == 7)
    *_, plain = (one for one in FITS if (one["bench"], one.get("table")) == ("converged", "mnist"))
    assert found["epsilon"] <= 1.0
    for page in ("README.md", "docs/index.md"):
        text = (ROOT / page).read_text("utf-8").replace("\n", " ")
        assert f"seven messages, nothing tuned: {found['accuracy']:.2f}% on MNIST" in text
        assert f"without privacy, the same model reaches {plain['accuracy']:.2f}%" in text
    for page in ("docs/hospitals.md", "docs/choose-epsilon.md"):
        text = (ROOT / page).read_text("utf-8").replace("\n", " ")
        assert re.search(rf"converged model [\w' ]*reaches {plain['accuracy']:.2f}%", text), page
    rounds = fmean(hospitals_page.values(RUNS, hospitals.Job("MNIST, HOG", "shares", 1.0, 0)))
    assert rounds < found["accuracy"] < plain["accuracy"]


def test_4000_patients_are_enough():
    """As README says, for a regression with ten columns and for a last layer; half are not."""
    terms = {"epsilon": 1.0, "clients": 10, "threshold": 6}
    columns = [Number(f"x{number}", 0, 1) for number in range(10)]
    for records in (4_000, 2_000):
        head = Softmax("y", [Features("x", 521)], classes=range(10), records=records, **terms)
        table = Logistic("y", columns, records=records, **terms)
        verdicts = {model.plan().verdict for model in (head, table)}
        assert (verdicts == {"enough patients"}) == (records == 4_000), verdicts
        assert ("enough patients" in verdicts) == (records == 4_000)


@pytest.mark.parametrize("label", ["CIFAR-10, ImageNet features", "breast cancer"])
def test_the_front_door_has_the_hospitals_numbers(label):
    """At ε = 1 for a patient, and converged without privacy."""
    ours = f"{fmean(hospitals_page.values(RUNS, hospitals.Job(label, 'shares', 1.0, 0))):.1f}%"
    if label.startswith("CIFAR"):  # in seven messages
        ours = f"{[one for one in FITS if one['bench'] == 'cifar'][-1]['accuracy']:.2f}%"
    plain, *_ = hospitals_page.converged(FITS, label)
    for page in ("README.md", "docs/index.md"):
        text = (ROOT / page).read_text("utf-8")
        assert ours in text, page
        assert f"{plain:.1f}%" in text, page


COSTS = {  # page and words, by runs
    "MNIST, HOG": [("choose-epsilon", "loses {:.2f} points on 60,000 digits")],
    "MNIST, 400 a hospital": [
        ("choose-epsilon", " {:.1f} points on 4,000 digits"),
        ("which-guarantee", "4,000 digits in ten hospitals lose {:.1f} points"),
    ],
    "breast cancer": [("choose-epsilon", " {:.1f} points on 400 breast-cancer patients")],
}


@pytest.mark.parametrize("label", COSTS)
def test_pages_tell_what_privacy_costs(label):
    """The converged model without privacy less shares at ε = 1."""
    plain, *_ = hospitals_page.converged(FITS, label)
    lost = plain - fmean(hospitals_page.values(RUNS, hospitals.Job(label, "shares", 1.0, 0)))
    for page, words in COSTS[label]:
        text = (ROOT / "docs" / f"{page}.md").read_text("utf-8").replace("\n", " ")
        assert words.format(lost) in text


def test_the_lines_for_flower_have_the_settings_of_a_kept_run():
    """They and the optimizer are those of MNIST in 60 rounds."""
    record = next(hospitals_page.alike(RUNS, ROUNDS))
    config = hospitals.Job.of(record).config("cpu")
    scheme, rule = config.sums, config.descent
    page = (ROOT / "docs/flower.md").read_text(encoding="utf-8").partition("privacy: records\n")[2]
    code = "".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[:2])
    told = {name: float(value) for name, value in re.findall(r"(\w+)=([\d._e-]+)[,)]", code)}
    assert {told.pop(name) for name in ("lr", "momentum")} == {rule.lr, rule.momentum}
    assert told.pop("most_records") >= scheme.records / scheme.clients
    assert told.pop("num_rounds") == rule.rounds == scheme.rounds < told.pop("rounds")
    assert told == {name: getattr(scheme, name) for name in told}
    assert len(told) == 8
    assert rule.is_cosine
    assert f"nesterov=True),\n    schedule=lambda o: {COSINE}(o, {rule.rounds})" in code
    lines = (ROOT / "lab/jopeq_lab/explorer/data/lines.toml").read_text()
    assert f"SGD(p, lr={rule.lr:g}, momentum=0.9, nesterov=True)" in lines


def test_the_optimizer_of_the_lines_steps_as_the_lab_does():
    """While the rate stays; as it falls, the lab's momentum keeps the rate of its own round."""
    weights = torch.nn.Parameter(torch.ones(5))
    optimizer = torch.optim.SGD([weights], lr=0.3, momentum=0.9, nesterov=True)
    server = Server(Descent(rounds=9, lr=0.3, momentum=0.9), weights.detach().clone())
    for number in range(9):
        weights.grad = torch.arange(5) * weights.detach()
        optimizer.step()
        server.step(number, torch.arange(5) * server.asked)
        torch.testing.assert_close(weights.detach(), server.asked)


def test_the_page_has_the_tables_of_the_kept_runs():
    page = (ROOT / "docs" / "hospitals.md").read_text(encoding="utf-8")
    assert hospitals_page.tables(RUNS, FITS) in page
    assert all(hospitals_page.claims(RUNS).values())
    for label in ("MNIST, scattering", "Fashion-MNIST, scattering"):
        job = hospitals.Job(label, "shares", 1.0, 0)
        assert {run["lr"] for run in hospitals_page.alike(RUNS, job)} == {125.0}
        assert hospitals.SETS[label].rates[-1] == 125.0
        assert hospitals.SETS[label].rounds == 100
    plain = hospitals_page.values(RUNS, hospitals.Job("MNIST, scattering", "none", 1.0, 0))
    assert f"{fmean(plain):.2f}% without privacy in 100 rounds" in page.replace("\n  ", " ")


def test_kept_runs_have_the_settings_that_their_trials_chose():
    chosen = hospitals.choose(read_lines(ROOT / "results" / hospitals.TRIALS))
    jobs = [hospitals.Job.of(run) for run in RUNS]
    assert len(set(jobs)) == len(jobs)
    for label in {job.label for job in jobs}:
        assert set(hospitals.runs(label, chosen)) == {job for job in jobs if job.label == label}


def test_a_claim_that_fails_stops_the_page(tmp_path):
    (tmp_path / hospitals.RUNS).write_text(
        (ROOT / "results" / hospitals.RUNS).read_text().replace('"proven":0.9', '"proven":1.9')
    )
    with pytest.raises(ClaimError):
        hospitals_page.write(tmp_path, tmp_path)


@pytest.mark.parametrize("name", hospitals_page.FILES)
def test_the_picture_is_drawn(name, tmp_path):
    hospitals_page.draw(FITS, RUNS, tmp_path / name)
    assert (tmp_path / name).stat().st_size > 10_000
    if name.endswith(".svg"):  # the kept one is drawn from the kept results
        drawn, kept = ((one / name).read_bytes() for one in (tmp_path, ROOT / "docs" / "figures"))
        assert drawn == kept


def test_the_picture_shows_the_headline():
    rows = hospitals_page.rows_of("mnist", "MNIST, HOG", FITS, RUNS)
    assert [*rows][:2] == ["converged, without privacy", "ε = 1, 7 messages, nothing tuned"]
    for page in ("README.md", "docs/index.md"):
        text = (ROOT / page).read_text("utf-8")
        for accuracy in rows.values():
            if accuracy != rows["ε = 1, each adds all the noise, 60 rounds"]:
                assert f"{accuracy:.2f}%" in text, (page, accuracy)
    rows = hospitals_page.rows_of("cifar", "CIFAR-10, ImageNet features", FITS, RUNS)
    assert any("without privacy" in name for name in rows)
    assert hospitals_page.rows_of("nothing", "MNIST, HOG", FITS, RUNS) == {}


def test_trials_and_runs_of_a_data_set(tmp_path, monkeypatch):
    """Settings are chosen on samples held out; a second call runs nothing again."""
    small = hospitals.Set("cancer", "table", 400, 2, 1.0, test=169, seeds=1, rates=(1.0,))
    monkeypatch.setitem(hospitals.SETS, "breast cancer", small)
    for method in ("shares", "sum"):
        job = hospitals.Job("breast cancer", method, 4.0, 0, rounds=2, held=100)
        record = hospitals.run(job, str(tmp_path), "cpu")
        assert hospitals.Job.of(record) == job
        assert record["validation_accuracy"] > 0
        assert "test_accuracy" not in record
