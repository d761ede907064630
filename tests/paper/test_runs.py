"""Jobs are trained once, and kept as they come."""

import json
from dataclasses import dataclass

import pytest
import torch

import jopeq
from jopeq import scheme
from jopeq.errors import DataError
from jopeq.versions import NAMES
from jopeq_lab.training.config import TrainConfig
from jopeq_lab.training.simulation import DivergedError, Simulation, train
from paper import runs
from paper.runs import Job, Run, read_records, run_job, run_jobs


def small(**changes):
    settings = {"data": "digits", "clients": 2, "rounds": 4, "local_steps": 2, "compile": "off"}
    return Job("raw", TrainConfig(**{**settings, "scheme": scheme("sdq", rate=2.0), **changes}))


def test_a_run_keeps_what_a_table_needs(monkeypatch):
    runs.origin.cache_clear()
    monkeypatch.setenv("JOPEQ_COMMIT", "abc1234")
    run = run_job(small(scheme=scheme("response", epsilon=4.0, rate=2.0)))
    runs.origin.cache_clear()
    assert (run.label, run.rounds, len(run.validation), run.test) == ("raw", 4, 4, None)
    assert (run.settings["commit"], bool(run.settings["machine"])) == ("abc1234", True)
    assert 3.99 < run.epsilon <= run.nominal == 4.0
    assert run.snr > 0
    assert run.bytes_per_client == pytest.approx(run.bits_per_parameter * 650 / 8)
    json.dumps(vars(run), allow_nan=False)
    assert run_job(small()).test_accuracy == train(small().config).test_accuracy


def test_runs_are_kept_as_they_come_and_not_made_twice(tmp_path):
    path, seen = tmp_path / "folder" / "runs.jsonl", []
    jobs = [small(seed=seed) for seed in range(3)]
    given = {"processes": 1, "progress": lambda *args: seen.append(args[:2])}
    first = run_jobs(jobs[:2], path, run_job, **given)
    assert read_records(path, Run) == first
    every = run_jobs(jobs, path, run_job, **given)
    assert seen == [(1, 2), (2, 2), (3, 3)]  # only the new one was trained
    assert every[:2] == first
    assert [run.seed for run in every] == [0, 1, 2]


def test_settings_but_not_versions_make_another_run(tmp_path):
    path, job = tmp_path / "runs.jsonl", small(scheme="none")
    (run,) = run_jobs([job], path, run_job, processes=1)
    told = {name: run.settings[name] for name in ("device", "tf32", "torch", "jopeq")}
    versions = {"torch": torch.__version__, "jopeq": jopeq.__version__}
    assert told == {"device": "cpu", "tf32": False, **versions}
    assert run.settings.keys() >= set(NAMES)
    assert run.snr is run.epsilon is None  # neither error nor guarantee
    seen = []
    run_jobs([small(scheme="none", centered=True)], path, seen.append, processes=1)
    assert [one.config.centered for one in seen] == [True]
    older = {name: v for name, v in run.settings.items() if name not in (*NAMES, "centered")}
    for kept in (older, {**run.settings, "jopeq": "0.0.1", "numpy": "9.9"}):
        path.write_text(json.dumps({**vars(run), "settings": kept}) + "\n")
        (found,) = run_jobs([job], path, pytest.fail, processes=1)
        assert found.settings == kept


def test_divergence_is_kept_with_its_reason_and_stops_no_other_run(tmp_path, monkeypatch):
    step, path = Simulation.step, tmp_path / "runs.jsonl"

    def diverging(self):
        if len(self.history) == (2, None, 0)[self.config.seed]:
            raise DivergedError(f"not finite in round {len(self.history) + 1}")
        return step(self)

    monkeypatch.setattr(Simulation, "step", diverging)
    jobs = [small(seed=2), small(), small(seed=1)]
    with pytest.warns(RuntimeWarning, match="seed 2"):
        run, other = run_jobs(jobs, path, run_job, processes=1)
    assert run.diverged == "not finite in round 3"
    assert (run.rounds, len(run.validation)) == (4, 2)
    assert (other.seed, other.diverged) == (1, None)
    assert run_jobs(jobs[1:2], path, pytest.fail, processes=1) == [run]  # not trained again


@dataclass(frozen=True)
class Point:
    x: float
    name: str = ""


@pytest.mark.parametrize("line", ['{"x": 1, "na', "[1]", '{"y": 2}'])
def test_a_spoilt_line_is_named(tmp_path, line):
    path = tmp_path / "points.jsonl"
    path.write_text('{"x": 1}\n' + line + "\n")
    with pytest.raises(DataError, match=r"points\.jsonl, line 2"):
        read_records(path, Point)
