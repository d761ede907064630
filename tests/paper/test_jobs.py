"""The jobs are what the paper says, and the committed runs are theirs."""

import math
import shutil
from pathlib import Path

import pytest

from paper import cifar, mnist
from paper.kept_runs import run_jobs
from paper.runs import folder_name

KEPT = Path(__file__).parents[2] / "results"


def test_table1_is_the_papers_setting():
    jobs, code = list(mnist.table1_jobs(count=2)), list(mnist.code_jobs(count=2))
    rows = len(mnist.schemes_at()) + len(mnist.as_the_code())
    assert len(jobs) == 2 * len(mnist.MODELS) * rows
    assert [job in code for job in jobs] == [job.config.keep_momentum for job in jobs]
    by_row = [(job.config.model, job.label) for job in mnist.own_jobs()]
    assert {by_row.count(row) for row in by_row if row != ("cnn", "none")} == {3}
    assert by_row.count(("cnn", "none")) == 5
    for job in jobs:
        config = job.config
        assert (config.clients, config.local_steps, config.batch_size) == (10, 100, 16)
        assert (config.lr, config.momentum, config.rounds) == (0.1, 0.5, 95)
        assert (config.data, config.validation) == ("mnist", 10_000)
    assert {job.config.seed for job in jobs} == {0, 1}
    rows = list(mnist.schemes_at())[: len(mnist.PAPER)]
    assert list(mnist.PAPER) == list(mnist.AUTHORS_CODE) == rows
    assert list(mnist.as_the_code()) == rows


def test_table1_as_the_code():
    """The code's own settings: configurations.py and quantization.py of its repository."""
    for job in mnist.code_jobs(count=1):
        config = job.config
        assert (config.centered, config.keep_momentum) == (True, True)
        factors = config.plateau_factor, config.plateau_patience
        assert (config.schedule, *factors) == ("client-plateau", 0.1, 10)
    rows = mnist.as_the_code()
    for name in ("sdq", "laplace+sdq", "jopeq"):
        assert rows[name].codebook.letters == 3
        variance = 0.0 if name == "sdq" else 2 * (2 / 4.0) ** 2
        assert rows[name].codebook.gamma == pytest.approx(1.5 * math.sqrt(1 + variance))
    assert {(rows[name].per, rows[name].center) for name in rows if name != "none"} == {
        ("tensor", True)
    }


def test_table2_is_the_papers_setting():
    jobs = list(cifar.table2_jobs())
    rows = len(cifar.table2_schemes())
    assert len(jobs) == rows * (3 + 3 + 3 + 1)
    for job in jobs:
        config = job.config
        assert (config.clients, config.local_steps, config.batch_size) == (30, 100, 16)
        assert (config.momentum, config.validation) == (0.5, 10_000)
        assert config.rounds == (95 if config.lr == cifar.TOO_HIGH else 160)
        assert (config.data, config.model, config.centered) == ("cifar10", "cifar-cnn", True)
    assert {job.config.lr for job in jobs[: 3 * rows]} == {0.1}  # other rates come last
    assert {job.config.seed for job in jobs if job.config.lr == cifar.TOO_HIGH} == {0}
    longer = list(cifar.jobs())[len(jobs) :]
    assert {job.config.rounds for job in longer} == {cifar.LONG_ROUNDS}
    assert len({folder_name(job) for job in jobs}) == len(jobs)


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
    done = run_jobs(wanted, Path(path), processes=1, also=also, runner=pytest.fail)
    assert len(done) == len(wanted)
