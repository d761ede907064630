import json
from dataclasses import dataclass

import pytest
import torch

import jopeq
from jopeq import scheme
from jopeq.errors import DataError
from jopeq.lab.training.config import TrainConfig
from jopeq.versions import NAMES
from paper import kept_runs as runs
from paper.kept_runs import Job, read, read_records, run_jobs, seeds


def small(**changes):
    settings = {"data": "digits", "clients": 2, "rounds": 2, "local_steps": 2, "compile": "off"}
    return TrainConfig(**{**settings, **changes})


def test_a_run_keeps_what_a_table_needs():
    run = runs.run_job(Job("ours", small(scheme=scheme("response", epsilon=4.0, rate=2.0))))
    assert (run.label, run.rounds, len(run.validation)) == ("ours", 2, 2)
    assert 3.99 < run.epsilon <= run.nominal == 4.0
    assert run.snr > 0
    assert run.bytes_per_client == pytest.approx(run.bits_per_parameter * 650 / 8)
    json.dumps(vars(run), allow_nan=False)


def test_runs_are_kept_as_they_come_and_not_made_twice(tmp_path):
    path = tmp_path / "folder" / "runs.jsonl"
    jobs = [Job("raw", config) for config in seeds(small(), 3)]
    seen = []
    given = {"processes": 1, "progress": lambda *args: seen.append(args[:2])}
    first = run_jobs(jobs[:2], path, **given)
    assert read(path) == first
    every = run_jobs(jobs, path, **given)
    assert seen == [(1, 2), (2, 2), (3, 3)]  # only the new one was trained
    assert every[:2] == first
    assert [run.seed for run in every] == [0, 1, 2]


def test_divergence_is_an_error_and_what_was_done_stays(tmp_path):
    path = tmp_path / "runs.jsonl"
    jobs = [Job("raw", small()), Job("wild", small(lr=3e38, local_steps=9))]
    with pytest.raises(RuntimeError, match="wild, seed 0"):
        run_jobs(jobs, path, processes=1)
    assert [run.label for run in read(path)] == ["raw"]


def test_settings_but_not_versions_make_another_run(tmp_path):
    path = tmp_path / "runs.jsonl"
    (run,) = run_jobs([Job("raw", small())], path, processes=1)
    told = {name: run.settings[name] for name in ("device", "tf32", "torch", "jopeq")}
    versions = {"torch": torch.__version__, "jopeq": jopeq.__version__}
    assert told == {"device": "cpu", "tf32": False, **versions}
    assert run.settings.keys() >= set(NAMES)
    assert run.snr is run.epsilon is None  # neither error nor guarantee
    seen = []
    run_jobs([Job("raw", small(centered=True))], path, processes=1, runner=seen.append)
    assert [job.config.centered for job in seen] == [True]
    older = [
        {n: v for n, v in run.settings.items() if n not in left} for left in (NAMES, ["centered"])
    ]
    for kept in (*older, {**run.settings, "jopeq": "0.0.1", "numpy": "9.9"}):
        path.write_text(json.dumps({**vars(run), "settings": kept}) + "\n")
        (found,) = run_jobs([Job("raw", small())], path, processes=1, runner=pytest.fail)
        assert found.settings == kept


@dataclass(frozen=True)
class Point:
    x: float
    name: str = ""


@pytest.mark.parametrize("line", ['{"x": 1, "na', "[1]", '{"y": 2}'])
def test_a_spoilt_line_is_named_with_the_remedy(tmp_path, line):
    path = tmp_path / "points.jsonl"
    path.write_text('{"x": 1}\n' + line + "\n")
    with pytest.raises(DataError, match=r"points\.jsonl, line 2 is no Point .*delete that line"):
        read_records(path, Point)
