import numpy as np
import pytest
import torch

from jopeq.errors import DataError
from jopeq.experiments.attack_training import read_stages, train_stages
from jopeq.federated.data import Dataset
from jopeq.federated.models import build, count_parameters


def tiny(count=48):
    draws = torch.Generator().manual_seed(0)
    images = torch.rand(count, 3, 8, 8, generator=draws)
    labels = torch.arange(count) % 10
    return Dataset("tiny", images, labels, images[:20], labels[:20], 10)


def test_the_first_stage_is_the_untrained_model(tmp_path):
    stages = train_stages(tiny(), tmp_path / "stages.npz", epochs=0)
    model = build("lenet", (3, 8, 8), 10, 0)
    own = torch.cat([p.detach().reshape(-1) for p in model.parameters()]).numpy()
    assert stages.epochs == 0
    assert np.array_equal(stages.parameters[0], own)
    assert np.abs(stages.parameters).max() <= 0.5


def test_a_resumed_training_is_the_same_training(tmp_path):
    told = []
    whole = train_stages(tiny(), tmp_path / "a.npz", epochs=3, progress=lambda *t: told.append(t))
    assert [epoch for epoch, _, _ in told] == [1, 2, 3]
    train_stages(tiny(), tmp_path / "b.npz", epochs=1)
    resumed = train_stages(tiny(), tmp_path / "b.npz", epochs=3)
    assert np.array_equal(whole.parameters, resumed.parameters)
    assert np.array_equal(whole.accuracies, resumed.accuracies)
    assert whole.parameters.shape == (4, count_parameters(build("lenet", (3, 8, 8), 10, 0)))
    assert not np.array_equal(whole.parameters[1], whole.parameters[2])
    fewer = train_stages(tiny(), tmp_path / "b.npz", epochs=2)
    assert fewer.epochs == 2


def test_another_models_file_is_refused(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, parameters=np.zeros((1, 5), dtype=np.float32), accuracies=np.zeros(1))
    with pytest.raises(DataError, match="another model"):
        train_stages(tiny(), path, epochs=1)
    path.write_bytes(b"nothing")
    with pytest.raises(DataError, match="cannot be read"):
        read_stages(path)
