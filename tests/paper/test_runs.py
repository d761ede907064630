import time
from dataclasses import replace

import pytest

from jopeq import scheme
from jopeq.lab.training.config import TrainConfig
from jopeq.lab.training.record import CHECKPOINT, ROUNDS
from jopeq.lab.training.simulation import DivergedError, Simulation
from paper import runs
from paper.kept_runs import Job, run_job, run_jobs
from paper.runs import KeptRunner, StoppableRunner, folder_name


def small(**changes):
    settings = {"data": "digits", "clients": 2, "rounds": 4, "local_steps": 2, "compile": "off"}
    return Job("raw", TrainConfig(**{**settings, "scheme": scheme("sdq", rate=2.0), **changes}))


class Clock:
    """``time.time`` that is past the deadline after so many looks."""

    def __init__(self, looks):
        self.looks = looks

    def __call__(self):
        self.looks -= 1
        return 0.0 if self.looks >= 0 else 10.0


def test_a_run_to_the_end_is_the_run_of_run_job(tmp_path):
    run = StoppableRunner(tmp_path)(small())
    plain = run_job(small())
    assert run.validation == plain.validation
    assert run.test_accuracy == plain.test_accuracy
    assert len(run.test) == 4
    assert run.test[run.best_round - 1] == run.test_accuracy
    assert list(tmp_path.iterdir()) == []  # nothing is unfinished


def test_kept_runs_tell_their_origin_and_no_more_rounds_than_are_shown(tmp_path, monkeypatch):
    runs.origin.cache_clear()
    monkeypatch.setenv("JOPEQ_COMMIT", "abc1234")
    runner = KeptRunner(StoppableRunner(tmp_path))
    run = runner(small())
    assert run.settings["commit"] == "abc1234"
    assert run.settings["machine"]
    assert len(run.validation) == 4
    assert run.test is None
    whole = StoppableRunner(tmp_path)(small())
    for data, model, lr, curves in (
        ("mnist", "linear", 0.1, (True, False)),
        ("mnist", "cnn", 0.1, (False, False)),
        ("cifar10", "cifar-cnn", 0.1, (True, True)),
        ("cifar10", "cifar-cnn", 0.01, (True, False)),
    ):
        made = replace(whole, data=data, model=model)
        kept = KeptRunner(lambda job, made=made: made)(small(lr=lr))
        assert (kept.validation == whole.validation, kept.test == whole.test) == curves
    assert KeptRunner(lambda job: None)(small()) is None
    runs.origin.cache_clear()
    monkeypatch.delenv("JOPEQ_COMMIT")
    assert runs.origin("cpu")["commit"]
    runs.origin.cache_clear()


def test_a_stop_loses_nothing(tmp_path, monkeypatch):
    runner = StoppableRunner(tmp_path, deadline=5.0)
    monkeypatch.setattr(time, "time", Clock(2))  # at the start and after the first round
    assert runner(small()) is None
    mine = tmp_path / folder_name(small())
    assert (mine / CHECKPOINT).exists()
    assert len((mine / ROUNDS).read_text().splitlines()) == 2
    monkeypatch.setattr(time, "time", Clock(1))  # at the start
    assert runner(small()) is None
    assert len((mine / ROUNDS).read_text().splitlines()) == 3
    monkeypatch.setattr(time, "time", lambda: 0.0)
    run = runner(small())
    plain = StoppableRunner(tmp_path / "whole")(small())
    assert (run.validation, run.test, run.snr) == (plain.validation, plain.test, plain.snr)
    assert not mine.exists()


def test_divergence_is_kept_with_its_reason_and_stops_no_other_run(tmp_path, monkeypatch):
    step, path = Simulation.step, tmp_path / "runs.jsonl"

    def diverging(self):
        if len(self.history) == (2, None, 0)[self.config.seed]:
            raise DivergedError(f"not finite in round {len(self.history) + 1}")
        return step(self)

    monkeypatch.setattr(Simulation, "step", diverging)
    jobs = [small(seed=2), small(), small(seed=1)]
    runner = StoppableRunner(tmp_path / "unfinished")
    with pytest.warns(RuntimeWarning, match="raw, seed 2: not finite in round 1; nothing of it"):
        run, other = run_jobs(jobs, path, processes=1, runner=runner)
    assert run.diverged == "not finite in round 3"
    assert (run.rounds, len(run.validation), len(run.test)) == (4, 2, 2)
    assert (other.seed, other.diverged) == (1, None)
    assert run_jobs(jobs[1:2], path, processes=1, runner=pytest.fail) == [run]  # not trained again
