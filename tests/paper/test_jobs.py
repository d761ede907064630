"""The jobs are what the paper says, and the committed runs are theirs."""

import math
import shutil
from pathlib import Path

import pytest

from paper import cifar, mnist
from paper.kept_runs import run_jobs

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
