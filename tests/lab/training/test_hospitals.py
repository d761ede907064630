"""Hospitals: real shares, baselines, unequal parts, other models, and resumed runs."""

import json
import math

import numpy as np
import pytest
import torch

import jopeq
from jopeq.sums.record_accounting import least_multiplier
from jopeq_lab.training import data, features
from jopeq_lab.training.config import BASELINES
from jopeq_lab.training.hospitals import Hospitals
from jopeq_lab.training.simulation import HospitalsConfig, Simulation, train
from tests.lab.training.small import stopped_and_resumed

CLASSES = 4
BETTER_THAN_CHANCE = 0.25 + 5 * 0.031  # its standard error on 200 test images


def records(**changes):
    terms = {"epsilon": 8.0, "clip": 1.0, "records": 600, "sampling": 0.5, "rounds": 6}
    return jopeq.RecordSum(**{**terms, "clients": 4, "threshold": 3, **changes})


def small(scheme=None, **changes):
    base = {"features": "pixels", "threads": 1, "server_lr": 20.0, "server_momentum": 0.5}
    return HospitalsConfig(scheme=scheme or records(), **{**base, **changes})


def test_real_shares_teach_and_say_what_is_proven(quadrants):
    result = train(small(validation=100), dataset=quadrants)
    assert result.test_accuracy > BETTER_THAN_CHANCE
    assert result.epsilon <= 8.0
    assert result.facts["guarantee"].count("record") >= 2
    plan = records().plan(result.dimension)
    assert result.history[0].bytes_per_client == math.ceil(plan.payload_bits / 8)
    assert result.history[0].validation_accuracy is not None
    json.dumps(result.as_dict())


def test_the_mean_of_shares_is_the_clipped_mean_and_the_planned_noise(quadrants):
    """Against an independent sum, in units of the planned error: 5 standard errors."""
    scheme = records(sampling=1.0, clip=0.2)
    simulation = Simulation(small(scheme), dataset=quadrants)
    simulation.step()
    federation = simulation.federation
    inputs, labels = federation._inputs.flatten(1), federation._labels
    federation.layout.write(federation.model, federation._server.asked)
    slopes = torch.softmax(federation.model(federation._inputs), 1).detach()
    slopes = slopes - torch.nn.functional.one_hot(labels, CLASSES)
    rows = (slopes[:, :, None] * inputs[:, None]).flatten(1).double()
    rows *= (0.2 / rows.norm(dim=1, keepdim=True)).clamp_max(1.0)
    federation._training = 0.0
    error = federation._summed_mean(federation.plan) - (rows.sum(0) / 600).numpy()
    d = len(error)
    ratio = float(np.square(error).sum()) / (federation.plan.error * 0.2**2)
    assert abs(ratio - 1.0) < 5 * math.sqrt(2 / d) + 0.05  # the plan counts what may wrap


@pytest.mark.parametrize("baseline", BASELINES)
def test_baselines_have_their_noise(quadrants, baseline):
    scheme = records(sampling=1.0, epsilon=2.0)
    federation = Hospitals(small(scheme, baseline=baseline), quadrants)
    federation._training = 0.0
    means = np.stack([federation._baseline_mean() for _ in range(8)])
    found = float(means.var(axis=0, ddof=1).mean())
    central = (least(scheme) * scheme.clip / 600) ** 2
    expected = {"none": 0.0, "central": 1.0, "local": 4.0, "alone": 16.0}[baseline] * central
    assert abs(found - expected) <= 5 * expected * math.sqrt(2 / (7 * means.shape[1])) + 1e-20
    assert math.isinf(federation.guarantee.epsilon) == (baseline == "none")


def least(scheme):
    return least_multiplier(scheme.epsilon, scheme.delta, scheme.sampling, scheme.rounds, 1)


def test_any_model_gives_the_gradients_of_its_records(quadrants):
    """Dropout and the like are off: a row is a function of its record alone."""
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(36, 5), torch.nn.Tanh(), torch.nn.Dropout(0.5),
        torch.nn.Linear(5, CLASSES),
    )  # fmt: skip
    config = small(records(clip=9.0), features=None, standardized=True)
    federation = Hospitals(config, quadrants, model)
    federation._training = 0.0
    deviations, means = torch.std_mean(federation._inputs, dim=(1, 2, 3))
    assert torch.allclose(deviations, torch.ones(600))
    assert means.abs().max() < 1e-6
    output = federation.model(federation._inputs[7:8])
    torch.nn.functional.cross_entropy(output, federation._labels[7:8]).backward()
    own = torch.cat([p.grad.flatten() for p in federation.model.parameters()])
    assert np.allclose(federation._total(np.array([7, 7])).to_numpy(), 2 * own, atol=1e-5)


def test_hospitals_may_be_unequal_and_few_records_are_given_out(quadrants):
    config = small(records(records=500), partition="dirichlet", alpha=0.2)
    federation = Hospitals(config, quadrants)
    sizes = federation.summary()["records"]
    assert sum(sizes) == 500
    assert max(sizes) > 2 * min(sizes)
    assert len(train(config, dataset=quadrants).history) == 6
    with pytest.raises(ValueError, match=r"^most_records "):
        Hospitals(small(records(most_records=100)), quadrants)


def test_a_run_goes_on_where_it_stopped(quadrants, tmp_path):
    config = small(records(sampling=1.0), baseline="none", partition="dirichlet")
    straight = train(config, dataset=quadrants)
    resumed, rounds = stopped_and_resumed(config, 4, quadrants, tmp_path)
    assert rounds == [1, 2, 3, 4, 5, 6]
    ours, theirs = (list(one.model.parameters()) for one in (resumed, straight))
    for mine, other in zip(ours, theirs, strict=True):  # records sit in random slots: they round
        assert torch.allclose(mine, other, rtol=0.0, atol=1e-4)


def test_the_cancer_table_has_public_bounds_and_an_auc():
    table = data.load("cancer")
    assert table.classes == 2
    every = torch.cat((table.train_inputs, table.test_inputs))
    assert 0.0 <= float(every.min()) < float(every.max()) <= 1.0
    anew = table.split_anew(169, seed=3)
    assert (len(anew.train_labels), len(anew.test_labels)) == (400, 169)
    config = small(records(records=400, sampling=1.0), features="table", server_lr=1.0, test=169)
    assert train(config, dataset=table).summary["test_auc"] > 0.8
    with pytest.raises(ValueError, match=r"'hog'"):
        features.features(every, "hog")


@pytest.mark.parametrize(
    "bad",
    [
        *({"baseline": "nobody"}, {"partition": "shards"}, {"features": "sift"}),
        *({"server_momentum": 1.0}, {"alpha": 0.0}, {"scheme": "none"}),
        {"scheme": '["clients",{"clients":3,"clip":1.0,"epsilon":1.0,"threshold":3}]'},
    ],
    ids=str,
)
def test_wrong_settings_are_named(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        small(**bad)
