import pytest

from jopeq.federated.demo import demo_jobs, demo_rows, save_demo
from jopeq.federated.runs import run_jobs

pytest.importorskip("mlxtend")


def test_one_round_of_everything(tmp_path):
    jobs = [job for job in demo_jobs(rounds=1, count=1) if "R=2" not in job.label]
    runs = run_jobs(jobs, tmp_path / "runs.jsonl", processes=1)
    rows = {row.label: row for row in demo_rows(runs)}
    assert list(rows) == ["none", "sdq, R=1", "laplace+sdq, R=1", "jopeq, R=1", "response, R=1"]
    assert rows["none"].snr_db is None
    assert rows["none"].epsilon is None
    assert round(rows["jopeq, R=1"].epsilon, 2) == 10.12
    assert rows["response, R=1"].epsilon <= 4.0
    assert rows["response, R=1"].bits_per_parameter < 1.2
    assert rows["none"].accuracy.mean > 0.5  # one round already learns something
    save_demo(runs, tmp_path / "demo.png")
    assert (tmp_path / "demo.png").stat().st_size > 10_000
