"""The jobs are what the paper says, and the committed runs are theirs."""

import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from jopeq_lab.pictures.colours import LOOKS
from paper import cifar, mnist, results
from paper.__main__ import TRAININGS
from paper.runs import Run, add_record, read_records, run_jobs

KEPT = Path(__file__).parents[2] / "results"


def test_table2_rates_and_guarantees_are_honest_but_where_the_label_says_otherwise():
    for rate, epsilon in cifar.COLUMNS:
        rows = cifar.schemes_at(rate, epsilon)
        for label, coder in rows.items():
            if label not in ("none", "t", "t, published", "sdq, authors' points"):
                assert coder.bits_per_entry <= rate + 0.01, label
        assert rows["t"].guarantee.epsilon == pytest.approx(epsilon, rel=1e-6)
        squared_scale, nu = cifar.PUBLISHED[epsilon]
        assert rows["t, published"].distortion == pytest.approx(squared_scale * nu / (nu - 2))
    code = cifar.as_the_code("jopeq", 1.0, 3.0)
    assert 2 ** (2 * code.rate) == pytest.approx(9)
    assert (code.per, code.center, code.nu) == ("tensor", True, 4.0)
    assert code.gamma == pytest.approx(1.5 * math.sqrt(1.4))


@pytest.mark.parametrize(
    ("name", "jobs", "also"),
    [
        ("table1", mnist.table1_jobs, ()),
        ("fig3", mnist.fig3_jobs, (KEPT / "table1.jsonl",)),
        ("table2", cifar.jobs, ()),
    ],
)
def test_the_committed_runs_are_known_and_not_made_again(tmp_path, name, jobs, also):
    path = shutil.copy(KEPT / f"{name}.jsonl", tmp_path)
    wanted = list(jobs())
    done = run_jobs(wanted, Path(path), pytest.fail, processes=1, also=also)
    assert len(done) == len(wanted)


def test_a_scheme_of_another_package_gets_rows_and_stops_no_claim(tmp_path, monkeypatch):
    """It has runs to make in Table I, Figures 2 and 3, and its row once they are kept."""
    (tmp_path / "mypackage.py").write_text(
        "import jopeq\n"
        "def scheme(epsilon, rate):\n"
        "    return jopeq.JoPEQ(epsilon=epsilon, rate=rate, lattice='A2')\n"
        "def number(epsilon):\n"
        "    return epsilon\n"
        "def coarse(epsilon, rate):\n"
        "    if rate > 6:\n"
        "        raise ValueError('no such rate')\n"
        "    return jopeq.Response(epsilon=epsilon, rate=rate)\n"
    )
    (tmp_path / "broken.py").write_text("1 +")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("ADDED", "REFUSED"):
        monkeypatch.setattr(mnist, name, {})
    for name in ("mypackage:scheme", "mypackage:coarse"):
        monkeypatch.setitem(LOOKS, name, None)  # restored afterwards
    before = {name: len(list(jobs())) for name, jobs in TRAININGS.items()}
    with pytest.raises(ValueError, match=r"--add mypackage:nothing: .* give an importable"):
        mnist.add("mypackage:nothing")
    with pytest.raises(ValueError, match=r"number makes 4.0, which is no Scheme"):
        mnist.add("mypackage:number")
    with pytest.raises(ValueError, match=r"--add broken:row: SyntaxError"):
        mnist.add("broken:row")
    mnist.add("mypackage:scheme")
    mnist.add("mypackage:coarse")
    added = {name: len(list(jobs())) - before[name] for name, jobs in TRAININGS.items()}
    assert added == {"table1": 18, "fig2": 24 + 18, "fig3": 6, "table2": 0}
    assert len(mnist.REFUSED) == 6
    rows = {"table1": ("jopeq", "mypackage:scheme"), "fig2": ("response ε", "mypackage:coarse ε")}
    for name, (label, own) in rows.items():
        specs = {job.label: job.config.built_scheme.spec for job in TRAININGS[name]()}
        with open(shutil.copy(KEPT / f"{name}.jsonl", tmp_path), "a", encoding="utf-8") as file:
            for run in read_records(KEPT / f"{name}.jsonl", Run):
                mine = run.label.replace(label, own)
                if mine != run.label and mine in specs:
                    changed = replace(run, label=mine, scheme=specs[mine], test_accuracy=0.1)
                    add_record(file, changed)
    page = tmp_path / "docs" / "paper.md"
    assert not {"table1", "fig2"} & set(results.run(tmp_path, page))
    kept_page = (KEPT.parent / "docs" / "paper.md").read_text("utf-8").splitlines()
    new = [line for line in page.read_text("utf-8").splitlines() if line not in kept_page]
    first, *others = [line for line in new if "mypackage" in line]
    assert "**10.00 ± 0.00**" in first
    assert [line.endswith("| – | – |") for line in others] == [True] * 3
    assert not any("points below" in line for line in new)  # the prose is about the paper's rows
    mnist.schemes_at.cache_clear()
