"""Configurations and learning-rate schedules."""

import json

import pytest
import torch
from torch import nn

import jopeq
from jopeq.lab.training.config import TrainConfig


def test_the_scheme_is_completed():
    base = jopeq.scheme("response", epsilon=4, rate=2)
    assert TrainConfig(scheme=base, clip=0.3, rotate=True).built_scheme.clip == 0.3
    assert TrainConfig(scheme=base, clip="adaptive").built_scheme.clip == 0.1
    assert TrainConfig(scheme=base, spread="auto", clients=10).built_scheme.spread < 3.0
    assert TrainConfig(scheme=base.spec).built_scheme == base
    assert TrainConfig(scheme=base) == TrainConfig(scheme=base.spec)


def test_json_tells_everything_but_the_key():
    key = bytes(range(32))
    values = json.loads(json.dumps(TrainConfig(noise_key=key).as_dict()))
    assert values["scheme"] == '["none",{}]'
    assert key.hex() not in json.dumps(values)
    assert values["noise_key"].startswith("SHA-256 ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scheme": "zip"}, "scheme must be one of"),
        ({"scheme": "jopeq"}, "needs epsilon"),
        ({"scheme": 3}, "scheme must be a scheme"),
        ({"clients": 0}, "clients must be a whole number of at least 1, got 0"),
        ({"rounds": 2.5}, "rounds must be a whole number"),
        ({"lr": float("nan")}, "lr must be a positive number, got nan"),
        ({"momentum": 1.0}, "momentum must be a number from 0 to below 1"),
        ({"participation": 0.0}, "participation must be a positive number"),
        ({"partition": "random"}, "partition must be one of iid, dirichlet, shards"),
        ({"device": "warp"}, "device must be"),
        ({"centered": "yes"}, "centered must be True or False, got 'yes'"),
        ({"tf32": True}, "tf32=True is for GPUs, got device='cpu': use 'cuda'"),
        ({"clip": "auto"}, "clip must be a positive number or 'adaptive'"),
        ({"clip": 1.0}, "scheme 'none' sends the update as it is"),
        ({"spread": "wide"}, "spread must be a positive number or 'auto'"),
        ({"noise_key": b"short"}, "noise_key must be 32 bytes, got bytes of length 5"),
        ({"model": nn.Flatten}, "model must be a name"),
        ({"schedule": "plateau", "validation": 0}, "needs validation above 0"),
        ({"schedule": "cosine"}, "schedule must be one of constant, plateau, client-"),
        ({"convexity": 0.0}, "convexity must be"),
        ({"plateau_factor": 1.0}, "plateau_factor must"),
        ({"plateau_patience": -1}, "plateau_patience must"),
        ({"scheme": '["sdq",{"rate":2.0}]', "clip": "adaptive", "clip_quantile": 2.0}, "quantile"),
    ],
)
def test_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**options)


def rates(number, accuracies, steps, **options):
    return TrainConfig(local_steps=steps, **options).learning_rates(number, accuracies)


def test_theorem_counts_all_steps():
    options = {"schedule": "theorem", "convexity": 2.0, "smoothness": 3.0}
    tau, phi = 5, 5 * 6.0  # φ = τ·max(1, 4·3/2)
    expected = [tau / (2.0 * (t + phi)) for t in range(10)]
    found = rates(0, [], tau, **options) + rates(1, [], tau, **options)
    assert found == pytest.approx(expected)
    flat = rates(0, [], 4, schedule="theorem", convexity=9.0, smoothness=1.0)
    assert flat[0] == pytest.approx(1 / 9)


@pytest.mark.parametrize("mode", ["max", "min"])
def test_plateaus_are_pytorchs(mode):
    """Of the validation accuracy, and of each client's own loss."""
    source = torch.Generator().manual_seed(3)
    values = (torch.rand(80, generator=source) * 0.1 + 0.5).tolist()
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau
    theirs = plateau(optimizer, mode=mode, factor=0.5, patience=3)
    options = {"plateau_factor": 0.5, "plateau_patience": 3}
    clients = TrainConfig(schedule="client-plateau", **options)
    for number in range(80):
        if mode == "max":
            (rate,) = rates(number, values[:number], 1, schedule="plateau", **options)
        else:
            factor, untouched = clients.rate_factors([values[:number], []])
            (rate,) = (factor * eta for eta in clients.learning_rates(number, [])[:1])
            assert untouched == 1.0
        assert rate == pytest.approx(optimizer.param_groups[0]["lr"])
        theirs.step(values[number])
    assert rate < 0.1
    assert TrainConfig(schedule="plateau").rate_factors([[1.0] * 50]) is None
