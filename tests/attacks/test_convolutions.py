import pytest
import torch
from torch.nn import functional

from jopeq.attacks.gradients import MANY, ConvolutionsAsProducts, Window, folded, patches

WINDOWS = [
    Window((9, 7), (3, 3), (1, 1), (0, 0), (1, 1)),
    Window((9, 7), (5, 5), (2, 2), (2, 2), (1, 1)),
    Window((9, 7), (2, 3), (3, 1), (0, 1), (2, 1)),
    Window((9, 7), (1, 1), (1, 2), (0, 0), (1, 1)),
]


def numbers(*shape, seed=0):
    source = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=source, dtype=torch.float64)


@pytest.mark.parametrize("window", WINDOWS)
def test_patches_are_those_of_unfold_and_folding_is_their_transpose(window):
    images = numbers(4, 2, *window.image)
    found = patches(images, window)
    expected = functional.unfold(
        images, window.kernel, window.dilation, window.padding, window.stride
    )
    assert torch.equal(found, expected)
    columns = numbers(*found.shape, seed=1)
    there, back = (found * columns).sum(), (images * folded(columns, window)).sum()
    assert there.item() == pytest.approx(back.item(), rel=1e-12)


@pytest.mark.parametrize("window", WINDOWS)
def test_both_are_twice_differentiable_and_can_be_mapped(window):
    images = numbers(2, 2, *window.image).requires_grad_()
    columns = patches(images, window).detach().requires_grad_()
    for function, values in ((patches, images), (folded, columns)):
        assert torch.autograd.gradcheck(lambda x, f=function: f(x, window), values)
        assert torch.autograd.gradgradcheck(
            lambda x, f=function: f(x, window).square(), values, fast_mode=True
        )
        stacked = torch.stack((values, 2 * values), 1)
        mapped = torch.func.vmap(lambda x, f=function: f(x, window), in_dims=1)(stacked)
        assert torch.equal(mapped[1], function(2 * values, window))


@pytest.mark.parametrize("images", [1, MANY])
@pytest.mark.parametrize(
    "options",
    [
        {"stride": 2, "padding": 1},
        {"padding": "same"},
        {"dilation": (2, 1), "bias": numbers(4)},
        {"groups": 2},
    ],
)
def test_convolutions_are_pytorchs(options, images):
    inputs, groups = numbers(3, 2, 9, 7), options.get("groups", 1)
    kernels = numbers(4, 2 // groups, 3, 3, seed=1)
    expected = functional.conv2d(inputs, kernels, **options)
    with ConvolutionsAsProducts(images):
        found = functional.conv2d(inputs, kernels, **options)
        alone = functional.conv2d(inputs[0], kernels, **options)
    assert torch.allclose(found, expected, rtol=1e-10, atol=1e-12)
    assert torch.allclose(alone, expected[0], rtol=1e-10, atol=1e-12)


def test_kernels_that_do_not_fit_are_pytorchs_error():
    with ConvolutionsAsProducts(1), pytest.raises(RuntimeError, match="Kernel size"):
        functional.conv2d(numbers(1, 1, 3, 3), numbers(1, 1, 5, 5))
