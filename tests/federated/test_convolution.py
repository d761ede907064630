import pytest
import torch
from torch.nn import functional

from jopeq.federated.layers import Workspace, convolve, convolve_slices


def test_workspace_never_lends_twice():
    workspace, like = Workspace(), torch.zeros(3)
    first = workspace.take(like)
    second = workspace.take(like)
    assert first is not second
    workspace.give_back(second)
    assert workspace.take(like) is not first
    workspace.give_back(first)
    assert workspace.take(like) is first


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
