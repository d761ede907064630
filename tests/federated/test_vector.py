import torch
from torch import nn

from jopeq.federated.models import ModelVector, changing_buffers


def normalised():
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 2))


def test_stacked_and_joined_are_inverse():
    model = normalised()
    layout = ModelVector(model)
    vector = torch.arange(float(layout.size))
    stacked = layout.stacked(vector, 2)
    assert stacked["0.weight"].shape == (2, 3, 1, 3, 3)
    assert torch.equal(layout.joined(stacked, 2), vector.expand(2, -1))
    layout.write(model, vector)
    assert torch.equal(layout.read(model), vector)


def test_changing_buffers_are_found_without_changing_them():
    model = normalised()
    found = changing_buffers(model, torch.randn(2, 1, 4, 4))
    assert found == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert int(model[1].num_batches_tracked) == 0
    assert changing_buffers(nn.BatchNorm1d(2).requires_grad_(False), torch.ones(3, 2))
    assert not changing_buffers(nn.Linear(2, 2), torch.ones(3, 2))


def test_running_variance_stays_positive():
    model = normalised()
    layout = ModelVector(model, frozenset({"1.running_var"}))
    layout.write(model, torch.full((layout.size,), -1.0))
    assert float(model[1].running_var.min()) == 0.0
    assert float(model[0].weight.detach().max()) == -1.0
