"""Populations: people, cohorts, mechanisms, the server's rule, and whole runs."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import jopeq
from jopeq_lab.training import features
from jopeq_lab.training.cohorts import Central, mechanism
from jopeq_lab.training.descent import Descent, Server
from jopeq_lab.training.partition import cohorts, give_out
from jopeq_lab.training.record import CheckpointError
from jopeq_lab.training.simulation import PeopleConfig, Simulation, train
from tests.lab.training.small import stopped_and_resumed

BETTER_THAN_CHANCE = 0.25 + 5 * 0.031  # its standard error on 200 test images
SUM = jopeq.ClientSum(epsilon=4.0, clip=1.0, clients=300, threshold=300)
SPHERE = jopeq.Sphere(epsilon=8.0, clip=0.5, draws=1 << 12)


def config(**changes):
    base = {"people": 400, "rounds": 4, "features": "pixels", "validation": 100, "threads": 1}
    return PeopleConfig(**{**base, "server_lr": 20.0, "server_momentum": 0.3, **changes})


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 4), st.integers(1, 12), st.integers(0, 9))
def test_nobody_takes_part_too_often_or_twice_in_a_round(people, participations, rounds, seed):
    size = people * participations // rounds
    sizes = [min(people, size)] * rounds
    drawn = list(cohorts(people, sizes, seed))
    assert [len(np.unique(some)) for some in drawn] == sizes
    counted = Counter(np.concatenate(drawn).tolist())
    assert max(counted.values(), default=0) <= participations
    if sum(sizes) >= people:  # nobody comes again before all have come
        assert len(counted) == people


def test_samples_are_given_out_once_while_they_last():
    assert len(np.unique(give_out(30, 2, 60, seed=1))) == 60
    again = np.bincount(give_out(100, 1, 60, seed=1).ravel(), minlength=60)
    assert set(again) == {1, 2}


@pytest.mark.parametrize("kind", features.KINDS)
def test_features_have_length_one_and_depend_on_their_own_image_alone(kind):
    images = torch.rand(5, 2, 12, 10, generator=torch.Generator().manual_seed(0))
    found = features.features(images, kind)
    assert torch.allclose(found.norm(dim=1), torch.ones(5), atol=1e-5)
    assert torch.allclose(features.features(images[2:3], kind)[0], found[2], atol=1e-6)
    blank = features.features(torch.zeros(1, 1, 8, 8), kind)
    assert bool(torch.isfinite(blank).all())
    done = features.finished(found, center=found[0])
    assert bool((done.norm(dim=1) < 1.0 + 1e-5).all())


def test_the_server_averages_its_last_weights():
    server = Server(Descent(rounds=4, lr=1.0, momentum=0.5, decay=0.5, average=0.5), torch.zeros(1))
    weights, velocity, seen = 0.0, 0.0, []
    for number in range(4):
        assert float(server.asked) == pytest.approx(weights + 0.5 * velocity)
        server.step(number, torch.ones(1).double())
        velocity = 0.5 * velocity - (1.0 - 0.5 * number / 4)
        weights += velocity
        seen.append(weights)
    assert float(server.result) == pytest.approx((seen[2] + seen[3]) / 2)


def test_every_mechanism_gives_the_mean_up_to_its_error():
    generator = np.random.default_rng(0)
    updates = generator.standard_normal((300, 50)).astype(np.float32)
    updates /= np.linalg.norm(updates, axis=1, keepdims=True)
    sphere = jopeq.Sphere(epsilon=8.0, clip=1.0)
    for made, expected in (
        (mechanism(jopeq.scheme("none")), 0.0),
        (mechanism(sphere), sphere.expected_error(50) / 300),
        (mechanism(SUM), SUM.expected_error(50)),
        (Central(epsilon=4.0, delta=1e-5, clip=1.0), SUM.plan(50).central_error),
    ):
        cohort = made.cohort(50, 300, 1)
        for first in (0, 100, 200):
            some = np.arange(first, first + 100)
            cohort.add(torch.from_numpy(updates[some]), some)
        error = float(np.sum((cohort.mean() - updates.mean(0)) ** 2))
        # of 50 nearly independent squares: relative deviation √(2/50), five of them
        assert abs(error - expected) <= 5 * math.sqrt(2 / 50) * expected + 1e-12, made
        assert cohort.sent > 0
        assert cohort.refused == 0


def test_a_person_is_counted_once_in_a_cohort():
    cohort = mechanism(SPHERE).cohort(20, 3, 1)
    cohort.add(torch.ones(2, 20), np.array([7, 8]))
    cohort.add(torch.ones(2, 20), np.array([9, 7]))
    assert cohort.refused == 1


def test_guarantees_are_of_a_person():
    reports = mechanism(SPHERE).guarantee(1000, 10, 3)
    assert (reports.unit, reports.delta) == ("client", 0.0)
    assert 23.9 < reports.epsilon <= 24.0
    entries = mechanism(jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=0.1))
    assert entries.guarantee(7850, 10, 1).epsilon == pytest.approx(31_400, rel=1e-6)
    shares = mechanism(SUM).guarantee(1000, 10, 2)
    assert (shares.unit, shares.adversary, shares.epsilon) == ("client", "sum", 4.0)
    assert mechanism(SUM).sized(10, 2).threshold == 10
    central = Central(epsilon=4.0, delta=1e-5, clip=0.5)
    assert central.deviation(10, 4) == pytest.approx(2 * central.deviation(10, 1))
    assert central.guarantee(5, 10, 4).unit == "client"


def test_a_tiny_population_learns_privately(quadrants):
    result = train(config(scheme=SPHERE, center=0.1), dataset=quadrants)
    assert result.test_accuracy > BETTER_THAN_CHANCE
    assert 7.9 < result.epsilon <= 8.0
    assert [done.participants for done in result.history] == [40, 90, 90, 90, 90]
    told = {"reports": 400, "refused": 0, "bytes_sent": 800, "is_resampled": False}
    assert told.items() <= result.summary.items()  # two bytes each
    again = train(config(people=1000, scheme="none"), dataset=quadrants)
    assert again.summary["is_resampled"]  # more people than samples


def test_a_tiny_population_learns_by_secure_sums(quadrants):
    scheme = jopeq.ClientSum(epsilon=8.0, clip=0.5, clients=2, threshold=2, colluding=0)
    result = train(config(scheme=scheme, participations=2), dataset=quadrants)
    assert result.test_accuracy > BETTER_THAN_CHANCE
    assert (result.epsilon, result.summary["reports"]) == (8.0, 800)
    assert "at most 2 rounds" in result.summary["guarantee"]


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_local_steps_and_images_as_they_are(quadrants, model):
    changes = {"examples": 3, "people": 200, "features": None, "model": model, "local_steps": 2}
    result = train(config(server_lr=1.0, lr=0.3, **changes), dataset=quadrants)
    assert result.test_accuracy > BETTER_THAN_CHANCE
    assert math.isinf(result.epsilon)


def test_the_update_is_the_gradient_of_the_person(quadrants):
    found = Simulation(config(people=5, rounds=1, examples=2), dataset=quadrants).federation
    samples = torch.tensor([[0, 1]])
    (row,) = found._gradient(samples)
    inputs = found.view(found._inputs[samples[0]])
    loss = torch.nn.functional.cross_entropy(found.model(inputs), found._labels[samples[0]])
    (slope,) = torch.autograd.grad(loss, list(found.model.parameters()))
    assert torch.allclose(row, slope.flatten(), atol=1e-6)


def test_a_resumed_run_is_the_same_run(quadrants, tmp_path):
    """Of people without noise, with a center: round 0."""
    resumed, rounds = stopped_and_resumed(config(center=0.1), 2, quadrants, tmp_path)
    assert resumed.test == train(config(center=0.1), dataset=quadrants).test
    assert rounds == [0, 1, 2, 3, 4]
    with pytest.raises(CheckpointError, match="rounds"):  # another number is another population
        train(config(center=0.1, rounds=5), resume=True, dataset=quadrants, out=tmp_path)


@pytest.mark.parametrize(
    "bad",
    [
        *({"people": 0}, {"rounds": 401}, {"center": 0.9}, {"center": 0.1, "features": None}),
        *({"features": "scattering"}, {"server_momentum": 1.0}, {"scheme": 5}, {"threads": 0}),
        {"participations": 2, "scheme": SUM, "center": 0.1},
    ],
    ids=str,
)
def test_bad_configurations_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        config(**bad)
