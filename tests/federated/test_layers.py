"""All clients in one forward pass computes what each client alone would."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from jopeq.federated.layers import Workspace, convolve, convolve_slices, stacked_forward


@pytest.mark.parametrize("for_compiler", [False, True])
@pytest.mark.parametrize(("size", "stride"), [((3, 3), (1, 1)), ((2, 3), (2, 1)), ((1, 1), (3, 2))])
def test_equals_pytorchs_convolution_and_gradients(size, stride, for_compiler):
    source = torch.Generator().manual_seed(0)
    inputs, kernels, biases = (
        torch.randn(*shape, generator=source, dtype=torch.float64).requires_grad_()
        for shape in ((2, 3, 8, 7, 5), (2, 4, 3, *size), (2, 4))
    )
    workspace = Workspace()
    for _ in range(2):  # the second time with the buffer of the first
        given = (inputs, kernels.flatten(2), biases, size, stride)
        found = convolve_slices(*given) if for_compiler else convolve(*given, workspace)
        expected = torch.stack(
            [
                functional.conv2d(x.movedim(-1, 0), w, b, stride).movedim(0, -1)
                for x, w, b in zip(inputs, kernels, biases, strict=True)
            ]
        )
        torch.testing.assert_close(found, expected)
        weights = torch.randn(found.shape, generator=source, dtype=torch.float64)
        leaves = (inputs, kernels, biases)
        ours = torch.autograd.grad((found * weights).sum(), leaves)
        theirs = torch.autograd.grad((expected * weights).sum(), leaves)
        torch.testing.assert_close(ours, theirs)


CLASSES = 4


def test_hooked_layers_are_left_to_vmap():
    model = nn.Sequential(nn.Flatten(), nn.Linear(256, CLASSES))
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
