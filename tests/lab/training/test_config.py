"""Configurations and learning-rate schedules."""

import pytest
import torch
from torch import nn

import jopeq
from jopeq_lab.training.config import TrainConfig


def test_the_scheme_is_completed():
    base = jopeq.scheme("response", epsilon=4, rate=2)
    assert TrainConfig(scheme=base, clip=0.3).built_scheme.clip == 0.3
    assert TrainConfig(scheme=base, spread="auto", clients=10).built_scheme.spread < 3.0
    assert TrainConfig(scheme=base.spec).built_scheme == base
    assert TrainConfig(scheme=base) == TrainConfig(scheme=base.spec)


@pytest.mark.parametrize(
    "bad",
    [
        *({"scheme": scheme} for scheme in ("zip", "jopeq", 3)),
        *({"clients": 0}, {"rounds": 2.5}, {"lr": float("nan")}, {"momentum": 1.0}, {"clip": 1.0}),
        *({"participation": 0.0}, {"partition": "random"}, {"device": "warp"}, {"tf32": True}),
        *({"centered": "yes"}, {"spread": "wide"}, {"model": nn.Flatten}, {"schedule": "cosine"}),
        *({"plateau_factor": 1.0}, {"plateau_patience": -1}),
    ],
    ids=str,
)
def test_refuses(bad):
    with pytest.raises(ValueError, match=next(iter(bad)).replace("clip", "scheme")):
        TrainConfig(**bad)


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
