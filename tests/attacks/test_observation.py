import numpy as np
import pytest
import torch
from torch import nn

import jopeq
from jopeq.attacks.gradients import GradientMap
from jopeq.attacks.observation import Observation, observe, true_gradients
from jopeq.federated.models import ModelVector

LAYOUT = ModelVector(nn.Linear(20, 3))
ROWS = torch.from_numpy(np.random.default_rng(0).normal(size=(4, LAYOUT.size)))


def test_raw_gradients_arrive_as_float32():
    sent = observe(jopeq.scheme("none"), ROWS, LAYOUT)
    assert torch.equal(sent.gradients, ROWS.float())
    assert len(sent) == 4


def test_real_payloads_are_decoded(private):
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


def test_joined_observations_keep_their_schemes():
    coders = [jopeq.scheme("none"), jopeq.scheme("sdq", rate=4.0)]
    both = Observation.joined([observe(coder, ROWS[:2], LAYOUT) for coder in coders])
    assert [scheme.name for scheme in both.schemes] == ["none", "none", "sdq", "sdq"]
    assert both.gradients.shape == (4, LAYOUT.size)


def test_a_model_that_is_not_finite_is_refused():
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    with torch.no_grad():
        model[1].weight[0, 0] = torch.nan
    found = GradientMap(model, (1, 2, 2))
    with pytest.raises(ValueError, match="not finite"):
        true_gradients(found, torch.rand(1, 1, 2, 2), torch.tensor([0]))


def test_no_images_and_labels_that_do_not_fit_are_named():
    found = GradientMap(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), (1, 2, 2))
    images, labels = torch.rand(2, 1, 2, 2), torch.tensor([0, 1])
    with pytest.raises(ValueError, match="at least one image"):
        true_gradients(found, images[:0], labels[:0])
    with pytest.raises(ValueError, match=r"images must be \(N, C, H, W\)"):
        true_gradients(found, images[0], labels)
    with pytest.raises(ValueError, match="at least one image"):
        observe(jopeq.scheme("none"), ROWS[:0], LAYOUT)
    with pytest.raises(ValueError, match=r"gradients must be \(N, d\)"):
        observe(jopeq.scheme("none"), ROWS[0], LAYOUT)
    for wrong, words in (
        (labels[:1], "one per image"),
        (labels + 1, "from 0 to 1.*got 2"),
        (labels - 1, "got -1"),
        (labels.double(), "integers"),
        ([0, 1], "got list"),
    ):
        with pytest.raises(ValueError, match=words):
            true_gradients(found, images, wrong)
    small = labels.to(torch.uint8)
    assert torch.equal(true_gradients(found, images, small), true_gradients(found, images, labels))
