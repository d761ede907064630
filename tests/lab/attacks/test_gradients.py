"""Gradients of single images, many at once."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from jopeq_lab.attacks.gradients import GradientMap

SHAPE = (2, 9, 8)


@pytest.fixture
def model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = nn.Sequential(
            *(nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.Sigmoid()),
            nn.Conv2d(4, 3, (3, 2), padding=(0, 1), dilation=(2, 1), bias=False),
            *(nn.Tanh(), nn.Flatten(), nn.LazyLinear(5)),
        )
        made(torch.zeros(1, *SHAPE))
    return made.double()


def victims(count=3):
    images = torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(1)).double()
    return images, torch.arange(count) % 5


def expected(model, images, labels):
    rows = []
    for image, label in zip(images, labels, strict=True):
        loss = functional.cross_entropy(model(image[None]), label[None])
        parts = torch.autograd.grad(loss, list(model.parameters()))
        rows.append(torch.cat([part.reshape(-1) for part in parts]))
    return torch.stack(rows)


def test_rows_are_the_gradients_of_single_images_and_differentiable(model):
    images, labels = victims()
    found = GradientMap(model, SHAPE, dtype=torch.float64)
    rows = found(images, found.one_hot(labels))
    assert torch.allclose(rows, expected(model, images, labels), rtol=1e-9, atol=1e-12)
    targets = found.one_hot(labels[:1])
    inputs = images[:1].requires_grad_()
    assert torch.autograd.gradcheck(lambda x: found(x, targets), inputs, fast_mode=True)


def test_every_image_meets_its_own_stage_of_training(model):
    images, labels = victims()
    own = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    stages = torch.stack((own, 0.5 * own, -own))
    together = GradientMap(model, SHAPE, dtype=torch.float64, parameters=stages)
    which = torch.tensor([2, 0, 1])
    rows = together(images, together.one_hot(labels), which)
    for row, stage in enumerate(which):
        alone = GradientMap(model, SHAPE, dtype=torch.float64, parameters=stages[stage : stage + 1])
        mine = alone(images[row : row + 1], alone.one_hot(labels[row : row + 1]))
        assert torch.allclose(rows[row], mine[0], rtol=1e-10, atol=1e-13)
    with pytest.raises(ValueError, match="which"):
        together(images, together.one_hot(labels))
