"""A run's folder and its checkpoint."""

import os
import pickle

import pytest
import torch

from jopeq_lab.training.config import TrainConfig
from jopeq_lab.training.metrics import RoundMetrics
from jopeq_lab.training.record import Checkpoint, CheckpointError

FIELDS = RoundMetrics.__dataclass_fields__


def rounds(count, **changes):
    plain = dict.fromkeys(FIELDS, 1.0)
    return [RoundMetrics(**{**plain, "round": n + 1, **changes}) for n in range(count)]


CONFIG = {"rounds": 10, "lr": 0.1, "seed": 0, "checkpoint_every": 1}


def checkpoint(**changes):
    values = {
        "config": CONFIG,
        "vector": torch.arange(3.0),
        "best_vector": torch.zeros(3),
        "best_round": 1,
        "history": [{"round": 1, "snr": None}],
        "state": {"clip": 0.25, "losses": [[2.5], []], "momenta": torch.ones(2, 3)},
    }
    return Checkpoint(**{**values, **changes})


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("bomb",)


def test_never_runs_what_it_reads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pickle").write_bytes(pickle.dumps(Bomb(), protocol=2))
    torch.save({"version": 1, "config": Bomb()}, tmp_path / "torch")
    for name in ("pickle", "torch"):
        with pytest.raises(CheckpointError, match="is no checkpoint"):
            Checkpoint.load(tmp_path / name)
    assert not (tmp_path / "bomb").exists()


def test_truncated_and_foreign_files(tmp_path):
    path = tmp_path / "checkpoint.pt"
    checkpoint().save(path)
    whole = path.read_bytes()
    torch.save({"weights": torch.zeros(2)}, path)
    foreign = path.read_bytes()
    for content in (b"", b"PK\x03\x04 nonsense", whole[:-100], foreign):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match="is no checkpoint"):
            Checkpoint.load(path)
    torch.save({"version": 99}, path)
    with pytest.raises(CheckpointError, match="version 99"):
        Checkpoint.load(path)


def test_belongs_to_one_run():
    saved = checkpoint(config={**CONFIG, "data_dir": "here"})  # the files may have moved
    changed = {"rounds": 20, "checkpoint_every": 5, "data_dir": "there"}
    saved.check({**CONFIG, **changed}, TrainConfig.MAY_CHANGE)
    with pytest.raises(CheckpointError, match=r"lr was 0\.1, is 0\.2"):
        checkpoint().check({**CONFIG, "lr": 0.2})
    with pytest.raises(CheckpointError, match="round 1, beyond rounds=0"):
        checkpoint().check({**CONFIG, "rounds": 0}, TrainConfig.MAY_CHANGE)
