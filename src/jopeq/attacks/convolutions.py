"""Convolutions as batched matrix products, twice differentiable, for many images at once.

On a GPU ``functional.unfold`` starts a kernel for every image. ``patches`` of all images are one
copy, and ``functional.fold``, the way back, is one kernel already; but a function with derivatives
of its own costs Python's time under ``vmap``, as much as about 200 such kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.autograd import Function
from torch.nn import functional
from torch.overrides import TorchFunctionMode

Pair = tuple[int, int]
MANY = 200  # images from which one copy is faster


class ConvolutionsAsProducts(TorchFunctionMode):
    """``conv2d`` as patches times kernels, wherever a module calls it for so many images."""

    def __init__(self, images: int) -> None:
        super().__init__()
        self._patches = patches if images >= MANY else _unfolded

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> torch.Tensor:
        given: dict[str, Any] = kwargs or {}
        if func is torch.conv2d:
            found = _convolve(self._patches, *args, **given)
            if found is not None:
                return found
        result: torch.Tensor = func(*args, **given)
        return result


class Window(NamedTuple):
    """Where patches are taken, of images of some height and width."""

    image: Pair
    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair

    @property
    def reach(self) -> list[int]:
        """Pixels from a patch's first to its last, on each axis."""
        return [self.dilation[i] * (self.kernel[i] - 1) + 1 for i in range(2)]

    @property
    def counts(self) -> list[int]:
        """Patches on each axis."""
        return [
            (self.image[i] + 2 * self.padding[i] - self.reach[i]) // self.stride[i] + 1
            for i in range(2)
        ]


def _convolve(
    taken: Callable[[torch.Tensor, Window], torch.Tensor],
    input: torch.Tensor,  # noqa: A002 (PyTorch's names)
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> torch.Tensor | None:
    if groups != 1 or isinstance(padding, str) or input.ndim != 4:
        return None
    window = Window(*map(_pair, (input.shape[-2:], weight.shape[-2:], stride, padding, dilation)))
    if min(window.counts) < 1:
        return None  # PyTorch says what is wrong
    found = weight.flatten(1) @ taken(input, window)
    if bias is not None:
        found = found + bias[:, None]
    return found.reshape(input.shape[0], weight.shape[0], *window.counts)


def _unfolded(images: torch.Tensor, window: Window) -> torch.Tensor:
    return functional.unfold(images, window.kernel, window.dilation, window.padding, window.stride)


def _pair(value: Any) -> Pair:
    return (value, value) if isinstance(value, int) else (value[0], value[-1])


class _OfWindow(Function):
    """A linear map that a window defines: nothing else is needed for its derivative."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: torch.Tensor) -> None:
        ctx.window = inputs[1]


class _Patches(_OfWindow):
    """Images (N, C, H, W) → patches (N, C·kernel, count)."""

    @staticmethod
    def forward(images: torch.Tensor, window: Window) -> torch.Tensor:
        above, left = window.padding
        views = functional.pad(images, (left, left, above, above))
        for axis in range(2):
            views = views.unfold(2 + axis, window.reach[axis], window.stride[axis])
            views = views[..., :: window.dilation[axis]]
        rows = images.shape[1] * window.kernel[0] * window.kernel[1]
        return views.permute(0, 1, 4, 5, 2, 3).reshape(len(images), rows, -1)

    @staticmethod
    def backward(ctx: Any, slopes: torch.Tensor) -> Any:
        return folded(slopes, ctx.window), None

    @staticmethod
    def vmap(info: Any, axes: Any, images: torch.Tensor, window: Window) -> Any:
        return _together(patches, info, axes, images, window)


class _Folded(_OfWindow):
    """Patches → images, each pixel the sum of all patches it is in: the transpose of the above."""

    @staticmethod
    def forward(columns: torch.Tensor, window: Window) -> torch.Tensor:
        return functional.fold(
            columns,
            window.image,
            window.kernel,
            dilation=window.dilation,
            padding=window.padding,
            stride=window.stride,
        )

    @staticmethod
    def backward(ctx: Any, slopes: torch.Tensor) -> Any:
        return patches(slopes, ctx.window), None

    @staticmethod
    def vmap(info: Any, axes: Any, columns: torch.Tensor, window: Window) -> Any:
        return _together(folded, info, axes, columns, window)


patches: Any = _Patches.apply
folded: Any = _Folded.apply


def _together(
    function: Any, info: Any, axes: Any, values: torch.Tensor, window: Window
) -> tuple[torch.Tensor, int]:
    """The mapped axis as part of the batch."""
    found = function(values.movedim(axes[0], 0).flatten(0, 1), window)
    return found.unflatten(0, (info.batch_size, -1)), 0
