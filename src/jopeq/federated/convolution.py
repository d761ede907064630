"""Convolutions of all clients as one batched product, batch last (see ``layers``).

The windows of the inputs are copied into a matrix of patches, whose rows are the entries of a
kernel and whose columns are the places it is laid on. The innermost axis is the batch, so that a
copy moves long runs; one product of the stacked kernels with the patches is then the result.
"""

from __future__ import annotations

from typing import Any

import torch


class Workspace:
    """One buffer for the patches of one convolution, used again at every step.

    A fresh one would be mapped and cleared by the operating system each time, at the price of the
    product itself.
    """

    def __init__(self) -> None:
        self._buffer: torch.Tensor | None = None
        self._is_lent = False

    def take(self, like: torch.Tensor) -> torch.Tensor:
        """A buffer of that shape, whose content is whatever was there."""
        buffer = self._buffer
        if self._is_lent:  # somebody still needs the last patches
            return torch.empty(like.shape, dtype=like.dtype, device=like.device)
        if (
            buffer is None
            or buffer.shape != like.shape
            or buffer.dtype != like.dtype
            or buffer.device != like.device
        ):
            buffer = torch.empty(like.shape, dtype=like.dtype, device=like.device)
            self._buffer = buffer
        self._is_lent = True
        return buffer

    def give_back(self, buffer: torch.Tensor) -> None:
        """The buffer may be overwritten."""
        if buffer is self._buffer:
            self._is_lent = False


class _Convolution(torch.autograd.Function):
    """A convolution of every client's images with its own kernels, as one batched product."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: torch.Tensor,
        kernels: torch.Tensor,
        biases: torch.Tensor,
        size: tuple[int, int],
        stride: tuple[int, int],
        workspace: Workspace,
    ) -> torch.Tensor:
        clients, channels, height, width, batch = inputs.shape
        rows = (height - size[0]) // stride[0] + 1
        columns = (width - size[1]) // stride[1] + 1
        of_client, of_channel, of_row, of_column, of_batch = inputs.stride()
        windows = inputs.as_strided(
            (clients, channels, *size, rows, columns, batch),
            (
                *(of_client, of_channel, of_row, of_column),
                *(of_row * stride[0], of_column * stride[1], of_batch),
            ),
        )
        patches = workspace.take(windows)
        patches.copy_(windows)
        if not any(ctx.needs_input_grad):
            workspace.give_back(patches)
        ctx.save_for_backward(kernels)
        ctx.patches, ctx.workspace = patches, workspace
        ctx.input_shape, ctx.stride = inputs.shape, stride
        flat = patches.view(clients, -1, rows * columns * batch)
        return torch.baddbmm(biases.unsqueeze(2), kernels, flat).view(
            clients, -1, rows, columns, batch
        )

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        (kernels,) = ctx.saved_tensors
        patches, (down, across) = ctx.patches, ctx.stride
        flat = patches.view(patches.shape[0], kernels.shape[2], -1)
        gradient = gradients[0].reshape(flat.shape[0], kernels.shape[1], -1)
        of_kernels = torch.bmm(gradient, flat.transpose(1, 2))
        of_biases = gradient.sum(2)
        of_inputs = None
        if ctx.needs_input_grad[0]:
            torch.bmm(kernels.transpose(1, 2), gradient, out=flat)  # the patches are done with
            of_inputs = gradient.new_zeros(ctx.input_shape)
            _, _, high, wide, rows, columns, _ = patches.shape
            for i in range(high):
                for j in range(wide):
                    into = of_inputs[
                        :, :, i : i + down * rows : down, j : j + across * columns : across
                    ]
                    into += patches[:, :, i, j]
        ctx.patches = None
        ctx.workspace.give_back(patches)
        return of_inputs, of_kernels, of_biases, None, None, None


convolve: Any = _Convolution.apply
"""(inputs (K, C, H, W, B), kernels (K, O, C·h·w), biases (K, O), (h, w), stride, workspace)"""


def convolve_slices(
    inputs: torch.Tensor,
    kernels: torch.Tensor,
    biases: torch.Tensor,
    size: tuple[int, int],
    stride: tuple[int, int],
) -> torch.Tensor:
    """The same for ``torch.compile``, in operations that it can fuse with what is around them."""
    clients, channels, height, width, batch = inputs.shape
    (high, wide), (down, across) = size, stride
    rows, columns = (height - high) // down + 1, (width - wide) // across + 1
    beside = [inputs[:, :, :, j : j + across * columns : across] for j in range(wide)]
    strips = torch.stack(beside, 2)
    below = [strips[:, :, :, i : i + down * rows : down] for i in range(high)]
    patches = torch.stack(below, 2).reshape(clients, channels * high * wide, -1)
    result = torch.bmm(kernels, patches) + biases.unsqueeze(2)
    return result.view(clients, -1, rows, columns, batch)
