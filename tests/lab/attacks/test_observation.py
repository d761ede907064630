"""What the server sees: payloads, gradients, labels."""

import numpy as np
import pytest
import torch
from torch import nn

import jopeq
from jopeq.lab.attacks.gradients import GradientMap
from jopeq.lab.attacks.observation import infer_labels, observe, true_gradients
from jopeq.lab.training.models import ModelVector, build

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


def test_scales_of_every_tensor_reach_the_likelihood():
    rows = ROWS.clone()
    rows[:, -3:] *= 1000.0  # the bias
    coder = jopeq.scheme("sdq", rate=6.0, per="tensor")
    sent = observe(coder, rows, LAYOUT)
    # half a step of 2/63 units of three deviations, which the bias would swamp with a shared unit
    assert (sent.gradients[:, :-3] - rows[:, :-3]).abs().max() < 0.1
    said = sent.likelihood()
    assert said.unit.shape == rows.shape
    assert said(rows).max() < 1e-6


def test_no_images_and_labels_that_do_not_fit_are_named():
    found = GradientMap(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), (1, 2, 2))
    images, labels, none = torch.rand(2, 1, 2, 2), torch.tensor([0, 1]), jopeq.scheme("none")
    for call, given, words in (
        (true_gradients, (found, images[:0], labels[:0]), "at least one image"),
        (true_gradients, (found, images[0], labels), r"images must be \(N, C, H, W\)"),
        (observe, (none, ROWS[:0], LAYOUT), "at least one image"),
        (observe, (none, ROWS[0], LAYOUT), r"gradients must be \(N, d\)"),
        (true_gradients, (found, images, labels[:1]), "one per image"),
        (true_gradients, (found, images, labels + 1), "from 0 to 1.*got 2"),
        (true_gradients, (found, images, labels - 1), "got -1"),
        (true_gradients, (found, images, labels.double()), "integers"),
        (true_gradients, (found, images, [0, 1]), "got list"),
    ):
        with pytest.raises(ValueError, match=words):
            call(*given)
    small = labels.to(torch.uint8)
    assert torch.equal(true_gradients(found, images, small), true_gradients(found, images, labels))


def test_lenet_gives_every_label_away():
    found = GradientMap(build("lenet", (1, 12, 12), 10, 0), (1, 12, 12))
    gradients, labels = gradients_of(found, 40)
    assert torch.equal(infer_labels(gradients, found.layout, 10), labels)
    assert not torch.equal(infer_labels(-gradients, found.layout, 10), labels)


def perceptron(activation, shift=0.0):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        hidden = nn.Linear(16, 12)
        model = nn.Sequential(nn.Flatten(), hidden, activation, nn.Linear(12, 5))
    with torch.no_grad():
        hidden.bias += shift
    return GradientMap(model, (1, 4, 4))


def gradients_of(found, count=50):
    labels = torch.arange(count) % found.classes
    images = torch.rand(count, *found.input_shape, generator=torch.Generator().manual_seed(0))
    return found(images, found.one_hot(labels)).detach(), labels


@pytest.mark.parametrize(
    ("activation", "shift"),
    [(nn.Tanh(), 0.0), (nn.Tanh(), -3.0), (nn.ReLU(), -100.0)],  # all zero: the bias is left
)
def test_inputs_of_the_last_layer_do_not_mislead(activation, shift):
    found = perceptron(activation, shift)
    gradients, labels = gradients_of(found)
    assert torch.equal(infer_labels(gradients, found.layout, 5), labels)
    small = gradients * 1e-25  # of which the squares would vanish in single precision
    assert torch.equal(infer_labels(small, found.layout, 5), labels)


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
