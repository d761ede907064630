"""Configurations and learning-rate schedules."""

import pytest
import torch
from torch import nn

import jopeq
from jopeq.lab.training.config import TrainConfig


def test_the_scheme_is_completed():
    base = jopeq.scheme("response", epsilon=4, rate=2)
    assert TrainConfig(scheme=base, clip=0.3).built_scheme.clip == 0.3
    assert TrainConfig(scheme=base, spread="auto", clients=10).built_scheme.spread < 3.0
    assert TrainConfig(scheme=base.spec).built_scheme == base
    assert TrainConfig(scheme=base) == TrainConfig(scheme=base.spec)


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
        ({"partition": "random"}, "partition must be one of iid, dirichlet"),
        ({"device": "warp"}, "device must be"),
        ({"centered": "yes"}, "centered must be True or False, got 'yes'"),
        ({"tf32": True}, "tf32=True is for GPUs, got device='cpu': use 'cuda'"),
        ({"clip": 1.0}, "scheme 'none' sends the update as it is"),
        ({"spread": "wide"}, "spread must be a positive number or 'auto'"),
        ({"model": nn.Flatten}, "model must be a name"),
        ({"schedule": "cosine"}, "schedule must be one of"),
        ({"plateau_factor": 1.0}, "plateau_factor must"),
        ({"plateau_patience": -1}, "plateau_patience must"),
    ],
)
def test_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**options)


def test_the_plateaus_of_clients_are_pytorchs():
    source = torch.Generator().manual_seed(3)
    losses = (torch.rand(80, generator=source) * 0.1 + 0.5).tolist()
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=3)
    config = TrainConfig(schedule="client-plateau", plateau_factor=0.5, plateau_patience=3)
    for number, loss in enumerate(losses):
        factor, untouched = config.rate_factors([losses[:number], []])
        assert untouched == 1.0
        assert factor == pytest.approx(optimizer.param_groups[0]["lr"])
        theirs.step(loss)
    assert factor < 0.1
    assert TrainConfig().rate_factors([losses]) is None
