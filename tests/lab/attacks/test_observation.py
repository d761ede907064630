"""What the server sees: payloads, gradients, labels."""

import numpy as np
import pytest
import torch
from torch import nn

import jopeq
from jopeq_lab.attacks.gradients import GradientMap
from jopeq_lab.attacks.observation import infer_labels, observe
from jopeq_lab.training.models import ModelVector, build

LAYOUT = ModelVector(nn.Linear(20, 3))
ROWS = torch.from_numpy(np.random.default_rng(0).normal(size=(4, LAYOUT.size)))


def test_real_payloads_are_decoded(private):
    sent = observe(jopeq.scheme("none"), ROWS, LAYOUT)
    assert torch.equal(sent.gradients, ROWS.float())
    coder = jopeq.scheme("jopeq", epsilon=3.0, rate=4.0)
    sent = observe(coder, ROWS, LAYOUT, noise=[private(f"observe {i}") for i in range(4)])
    for payload, row in zip(sent.payloads, sent.gradients, strict=True):
        assert torch.equal(torch.from_numpy(coder.decode(payload)), row)
    again = observe(coder, ROWS, LAYOUT)
    assert not torch.equal(again.gradients, sent.gradients)  # fresh noise


def test_lenet_gives_every_label_away():
    found = GradientMap(build("lenet", (1, 12, 12), 10, 0), (1, 12, 12))
    gradients, labels = gradients_of(found, 40)
    assert torch.equal(infer_labels(gradients, found.layout, 10), labels)
    assert not torch.equal(infer_labels(-gradients, found.layout, 10), labels)


def gradients_of(found, count=50):
    labels = torch.arange(count) % found.classes
    images = torch.rand(count, *found.input_shape, generator=torch.Generator().manual_seed(0))
    return found(images, found.one_hot(labels)).detach(), labels


@pytest.mark.parametrize("name", ["jopeq", "laplace"])
def test_noise_is_averaged_over_the_matrix(private, name):
    found = GradientMap(build("lenet", (1, 12, 12), 10, 0), (1, 12, 12))
    gradients, labels = gradients_of(found, 40)
    rate = {"rate": 8.0} if name == "jopeq" else {}
    noise = [private(f"labels {name} {i}") for i in range(40)]
    coder = jopeq.scheme(name, epsilon=3.0, **rate)
    received = observe(coder, gradients, found.layout, noise=noise).gradients
    by_bias = received[:, -10:].argmin(1)
    assert (by_bias != labels).sum() > 5  # one noisy number per class is not enough
    assert torch.equal(infer_labels(received, found.layout, 10), labels)
