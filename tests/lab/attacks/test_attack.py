"""Attacks on digits through real payloads, and what they minimize."""

import importlib

import pytest
import torch
from torch import nn

import jopeq
from jopeq_lab.attacks import (
    AttackConfig,
    GradientMap,
    Observation,
    attack,
    observe,
    scores,
    true_gradients,
)
from jopeq_lab.attacks.attack import Objective
from jopeq_lab.training.data import load
from jopeq_lab.training.models import build

SMALL = (1, 4, 4)


def objective(**changes):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Sigmoid(), nn.Linear(8, 3))
    found = GradientMap(model.double(), SMALL, dtype=torch.float64)
    images = torch.rand(3, *SMALL, generator=torch.Generator().manual_seed(0)).double()
    targets = found.one_hot(torch.arange(3))
    given = {"received": found(images, targets).detach(), "targets": targets, **changes}
    return Objective(gradient_map=found, **given), images.flatten(1)


def test_the_truth_is_the_minimum_of_both_distances():
    for distance in ("squares", "cosine"):
        wanted, truth = objective(distance=distance)
        losses, slopes = wanted.evaluate(truth)
        assert losses.abs().max() < 1e-12
        assert slopes.abs().max() < 1e-6
        assert (wanted.evaluate(truth.flip(1))[0] > 1e-4).all()
    scaled, _ = objective(distance="cosine", received=7.0 * wanted.received)
    assert torch.allclose(wanted(truth.flip(1)), scaled(truth.flip(1)))  # only the direction counts


SHAPE = (1, 8, 8)
module = importlib.import_module("jopeq_lab.attacks.attack")


@pytest.fixture(scope="module")
def victims():
    """The first three digits, and a LeNet of double precision."""
    digits = load("digits")
    model = build("lenet", SHAPE, 10, seed=0)
    seen_through = GradientMap(model, SHAPE, dtype=torch.float64)
    images, labels = digits.train_inputs[:3], digits.train_labels[:3]
    return seen_through, images, labels, true_gradients(seen_through, images, labels)


def sent(victims, name, **parameters):
    seen_through, _, _, gradients = victims
    return observe(jopeq.scheme(name, **parameters), gradients, seen_through.layout)


def attacked(victims, received, **options):
    return attack(victims[0], received, AttackConfig(**options), labels=victims[2])


def scored(victims, received, **options):
    return scores(attacked(victims, received, **options).images, victims[1])


@pytest.mark.parametrize("method", ["dlg", "idlg", "label", "adaptive"])
def test_raw_gradients_give_all_images_away(victims, method):
    found = attacked(victims, sent(victims, "none"), method=method, iterations=8)
    assert torch.equal(found.labels, victims[2])
    assert (scores(found.images, victims[1]).ssim > 0.9).all()


def test_so_does_the_cosine_attack(victims):
    options = {"method": "inverting", "iterations": 8, "variation": 1e-4}
    assert (scored(victims, sent(victims, "none"), **options).ssim > 0.9).all()


def test_coarse_and_noised_gradients_do_not(victims):
    seen_through, images, labels, _ = victims
    coarse = sent(victims, "jopeq", epsilon=3.0, rate=8.0)
    noised = sent(victims, "laplace", epsilon=3.0)
    both = Observation.join([coarse, noised])
    found = attack(seen_through, both, AttackConfig(iterations=8), labels=labels.repeat(2))
    assert (scores(found.images, images.repeat(2, 1, 1, 1)).ssim < 0.5).all()


def test_knowing_the_cells_undoes_quantization_that_stops_the_papers_attack(victims):
    received = sent(victims, "sdq", rate=6.0)
    plain = scored(victims, received, iterations=8)
    knowing = scored(victims, received, method="adaptive", iterations=8, variation=0.1)
    assert knowing.mse.mean() < 0.5 * plain.mse.mean()


@pytest.mark.parametrize("method", ["inverting", "adaptive"])
def test_an_image_is_found_as_if_it_were_attacked_alone(victims, method):
    together, options = sent(victims, "sdq", rate=8.0), {"method": method, "iterations": 3}
    found = attacked(victims, together, **options)
    parts = (part[2:3] for part in (together.schemes, together.payloads, together.gradients))
    given = {"labels": victims[2][2:3], "names": [2]}
    alone = attack(victims[0], Observation(*parts), AttackConfig(**options), **given)
    assert torch.allclose(alone.images[0], found.images[2], rtol=1e-4, atol=1e-5)
    assert alone.evaluations[0] == found.evaluations[2]


@pytest.mark.parametrize(
    "bad",
    [
        *({name: "guess"} for name in ("method", "optimizer", "start", "line_search")),
        *({"iterations": 0}, {"iterations": 2.5}, {"history": 0}, {"seed": -1}),
        *({"variation": bad} for bad in (-1.0, float("nan"), "x", True)),
        *({"learning_rate": 0.0}, {"learning_rate": None}),
        *({"tolerance": None}, {"tolerance": float("inf")}),
    ],
)
def test_bad_parameters_are_named(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        AttackConfig(**bad)


def test_bad_input_is_named(victims):
    seen_through, _, labels, _ = victims
    received = sent(victims, "none")
    short = Observation(received.schemes, received.payloads, received.gradients[:, :5])
    empty = Observation((), (), received.gradients[:0])
    for observation, given, words in (
        (received, {}, "given the true labels"),
        (received, {"labels": labels, "names": [1]}, "names"),
        (short, {"labels": labels}, "entries"),
        (empty, {"labels": labels[:0]}, "at least one image"),
        (received, {"labels": labels + 9}, "labels"),
    ):
        for method in ("label", "inverting", "adaptive"):
            with pytest.raises(ValueError, match=words):
                attack(seen_through, observation, AttackConfig(method=method), **given)
