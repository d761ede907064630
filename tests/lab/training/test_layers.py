"""All clients in one forward pass computes what each client alone would."""

import pytest
import torch
from torch import nn

from jopeq.lab.training.layers import Workspace, convolve, stacked_forward


def test_hooked_layers_are_left_to_vmap():
    model = nn.Sequential(nn.Flatten(), nn.Linear(256, 4))
    model[1].register_forward_hook(lambda module, inputs, output: 2 * output)
    assert stacked_forward(model) is None


@pytest.mark.parametrize(
    "layers",
    [
        (nn.ReLU(), nn.MaxPool2d(2)),
        (nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1), nn.MaxPool2d(2)),
        (nn.ReLU(), nn.AvgPool2d(2)),
        (nn.Sigmoid(), nn.MaxPool2d(2)),
    ],
)
def test_pooling_before_relu_changes_no_bit(layers):
    model = nn.Sequential(*layers)
    source = torch.Generator().manual_seed(0)
    inputs = torch.randn(2, 3, 9, 8, 5, generator=source).round(decimals=1)  # ties
    inputs.requires_grad_()
    stacked = stacked_forward(model)({}, inputs, True)
    images = inputs.permute(0, 4, 1, 2, 3).flatten(0, 1)
    plain = model(images).unflatten(0, (2, 5)).permute(0, 2, 3, 4, 1)
    assert torch.equal(stacked, plain)
    weights = torch.randn(plain.shape, generator=source)
    found, expected = (
        torch.autograd.grad((result * weights).sum(), inputs)[0] for result in (stacked, plain)
    )
    assert torch.equal(found, expected)


def test_a_convolution_used_again_before_its_gradient_keeps_both_images():
    """The buffer of patches is lent: a second call must not write over the first one's."""
    inputs = torch.randn(2, 1, 1, 4, 4, 1, generator=torch.Generator().manual_seed(0))
    kernels = torch.ones(1, 1, 4, requires_grad=True)
    workspace = Workspace()
    outs = [convolve(x, kernels, torch.zeros(1, 1), (2, 2), (1, 1), workspace) for x in inputs]
    (outs[0].sum() + outs[1].sum()).backward()
    windows = inputs[..., 0].unfold(3, 2, 1).unfold(4, 2, 1)
    assert torch.allclose(kernels.grad.flatten(), windows.sum((0, 1, 2, 3, 4)).flatten(), atol=1e-5)
