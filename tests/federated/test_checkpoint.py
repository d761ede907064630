import os
import pickle

import pytest
import torch

from jopeq.federated.record import Checkpoint, CheckpointError

CONFIG = {"rounds": 10, "lr": 0.1, "seed": 0, "checkpoint_every": 1}


def checkpoint(**changes):
    values = {
        "config": CONFIG,
        "vector": torch.arange(3.0),
        "best_vector": torch.zeros(3),
        "best_round": 1,
        "clip": 0.25,
        "history": [{"round": 1, "snr": None}],
    }
    return Checkpoint(**{**values, **changes})


def test_comes_back(tmp_path):
    path = tmp_path / "checkpoint.pt"
    checkpoint(clip=None).save(path)
    checkpoint().save(path)
    found = Checkpoint.load(path)
    assert torch.equal(found.vector, torch.arange(3.0))
    assert (found.best_round, found.clip, found.config) == (1, 0.25, CONFIG)
    assert found.history == [{"round": 1, "snr": None}]
    assert os.listdir(tmp_path) == ["checkpoint.pt"]


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("bomb",)


@pytest.mark.parametrize("kind", ["pickle", "torch"])
def test_never_runs_what_it_reads(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "checkpoint.pt"
    if kind == "pickle":
        path.write_bytes(pickle.dumps(Bomb(), protocol=2))
    else:
        torch.save({"version": 1, "config": Bomb()}, path)
    with pytest.raises(CheckpointError, match="is no checkpoint"):
        Checkpoint.load(path)
    assert not (tmp_path / "bomb").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 nonsense"])
def test_damaged_files_are_named(tmp_path, content):
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="is no checkpoint"):
        Checkpoint.load(path)


def test_truncated_and_foreign_files(tmp_path):
    path = tmp_path / "checkpoint.pt"
    checkpoint().save(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="is no checkpoint"):
        Checkpoint.load(path)
    torch.save({"weights": torch.zeros(2)}, path)
    with pytest.raises(CheckpointError, match="is no checkpoint"):
        Checkpoint.load(path)
    torch.save({"version": 99}, path)
    with pytest.raises(CheckpointError, match="version 99"):
        Checkpoint.load(path)


def test_belongs_to_one_run():
    checkpoint().check({**CONFIG, "rounds": 20, "checkpoint_every": 5})
    with pytest.raises(CheckpointError, match=r"lr was 0\.1, is 0\.2"):
        checkpoint().check({**CONFIG, "lr": 0.2})
    with pytest.raises(CheckpointError, match="round 1, beyond rounds=0"):
        checkpoint().check({**CONFIG, "rounds": 0})


def test_the_files_may_have_moved():
    saved = checkpoint(config={**CONFIG, "data_dir": "here"})
    saved.check({**CONFIG, "data_dir": "there"})
