"""All clients in one forward pass: the layers of a Sequential over stacked parameters.

Activations are kept *batch last*, (client, channel, height, width, batch) or (client, feature,
batch). In this layout a dense layer is one batched product of the stacked weights with the
activations, flattening is free, the patches of a convolution are long contiguous runs, and pooling
works on whole vectors of the batch. ``torch.func.vmap`` of the same model costs two to three times
as much on a CPU, mostly in grouped convolutions and pooling.

A model made of the layers of ``_RULES`` takes this way; any other is left to ``vmap``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Workspace:
    """One buffer for the patches of one convolution, reused at every step.

    The operating system would map and clear a fresh buffer each time, which costs as much as the
    product itself.
    """

    def __init__(self) -> None:
        self._buffer: torch.Tensor | None = None
        self._is_lent = False

    def take(self, like: torch.Tensor) -> torch.Tensor:
        """A buffer of the shape of ``like``, with arbitrary content."""
        if self._is_lent:  # the last patches are still in use
            return like.new_empty(like.shape)
        kept, kind = self._buffer, (like.shape, like.dtype, like.device)
        if kept is None or (kept.shape, kept.dtype, kept.device) != kind:
            kept = self._buffer = like.new_empty(like.shape)
        self._is_lent = True
        return kept

    def give_back(self, buffer: torch.Tensor) -> None:
        """Allow the buffer to be overwritten."""
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
        product = torch.baddbmm(biases.unsqueeze(2), kernels, flat)
        return product.view(clients, -1, rows, columns, batch)

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
    """``convolve`` in operations that ``torch.compile`` can fuse with their neighbours."""
    clients, channels, height, width, batch = inputs.shape
    (high, wide), (down, across) = size, stride
    rows, columns = (height - high) // down + 1, (width - wide) // across + 1
    beside = [inputs[:, :, :, j : j + across * columns : across] for j in range(wide)]
    strips = torch.stack(beside, 2)
    below = [strips[:, :, :, i : i + down * rows : down] for i in range(high)]
    patches = torch.stack(below, 2).reshape(clients, channels * high * wide, -1)
    result = torch.bmm(kernels, patches) + biases.unsqueeze(2)
    return result.view(clients, -1, rows, columns, batch)


Tensors = Mapping[str, torch.Tensor]
Layer = Callable[[Tensors, torch.Tensor, bool], torch.Tensor]  # (parameters, inputs, is_training)
Rule = Callable[[Any, Mapping[int, str]], Layer | None]  # (module, names of the parameters)


@dataclass(frozen=True, eq=False)
class StackedForward:
    """``model`` applied to every client at once.

    ``forward(parameters, inputs, is_training)`` takes parameters stacked on a first axis of K
    clients and inputs (K, *sample, B), and gives logits (K, classes, B). ``for_compiler`` uses
    operations that ``torch.compile`` can trace; they are slower without the compiler.
    """

    layers: Sequence[Layer]
    traceable: Sequence[Layer]
    has_convolutions: bool

    def __call__(
        self,
        parameters: Tensors,
        inputs: torch.Tensor,
        is_training: bool,
        for_compiler: bool = False,
    ) -> torch.Tensor:
        for layer in self.traceable if for_compiler else self.layers:
            inputs = layer(parameters, inputs, is_training)
        return inputs


def stacked_forward(model: nn.Module) -> StackedForward | None:
    """The batch-last form of a model, or None where a layer has no rule here.

    >>> dense = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    >>> stacked = stacked_forward(dense)
    >>> parameters = {name: p.detach().expand(3, *p.shape) for name, p in dense.named_parameters()}
    >>> tuple(stacked(parameters, torch.ones(3, 1, 2, 2, 5), True).shape)
    (3, 2, 5)
    >>> stacked_forward(nn.LSTM(3, 4)) is None
    True
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    modules = _pooled_first(_flat(model))
    layers: list[Layer] = []
    traceable: list[Layer] = []
    for module in modules:
        for made, rules in ((layers, _RULES), (traceable, _COMPILER_RULES)):
            rule = rules.get(type(module))
            layer = None if rule is None or _is_hooked(module) else rule(module, names)
            if layer is None:
                return None
            made.append(layer)
    has_convolutions = any(isinstance(module, nn.Conv2d) for module in modules)
    return StackedForward(layers, traceable, has_convolutions)


def _flat(module: nn.Module) -> Iterator[nn.Module]:
    """The modules of nested Sequentials, in order; a hooked Sequential stays whole."""
    if type(module) is nn.Sequential and not _is_hooked(module):
        for child in module:
            yield from _flat(child)
    else:
        yield module


def _pooled_first(modules: Iterable[nn.Module]) -> list[nn.Module]:
    """Swap ReLU and the maximum behind it: the same result to the bit, on fewer entries."""
    order: list[nn.Module] = []
    for module in modules:
        if type(module) is nn.MaxPool2d and order and type(order[-1]) is nn.ReLU:
            order.insert(-1, module)
        else:
            order.append(module)
    return order


def _is_hooked(module: nn.Module) -> bool:
    ways = ("forward", "forward_pre", "backward", "backward_pre")
    return any(getattr(module, f"_{way}_hooks") for way in ways)


# The rules: each turns a module into a function of stacked parameters, or gives None


def _linear(module: Any, names: Mapping[int, str]) -> Layer | None:
    weight, bias = names[id(module.weight)], names.get(id(module.bias))

    def apply(parameters: Tensors, inputs: torch.Tensor, is_training: bool) -> torch.Tensor:
        if inputs.ndim != 3:
            raise ValueError(f"a dense layer needs flat inputs, got {inputs.ndim - 2} axes")
        if bias is None:
            return torch.bmm(parameters[weight], inputs)
        return torch.baddbmm(parameters[bias].unsqueeze(2), parameters[weight], inputs)

    return apply


def _flatten(module: Any, names: Mapping[int, str]) -> Layer | None:
    if (module.start_dim, module.end_dim) != (1, -1):
        return None
    return lambda parameters, inputs, is_training: inputs.flatten(1, -2)


def _elementwise(module: Any, names: Mapping[int, str]) -> Layer | None:
    if getattr(module, "inplace", False):
        module = type(module)()
    return lambda parameters, inputs, is_training: module(inputs)


def _identity(module: Any, names: Mapping[int, str]) -> Layer | None:
    return lambda parameters, inputs, is_training: inputs


def _dropout(module: Any, names: Mapping[int, str]) -> Layer | None:
    return lambda parameters, inputs, is_training: functional.dropout(inputs, module.p, is_training)


def _pool(module: Any, names: Mapping[int, str]) -> Layer | None:
    """Pooling of images whose innermost axis is the batch: to PyTorch, channels-last images."""
    if getattr(module, "return_indices", False):
        return None

    def apply(parameters: Tensors, inputs: torch.Tensor, is_training: bool) -> torch.Tensor:
        images = inputs.flatten(0, 1).permute(0, 3, 1, 2)
        pooled: torch.Tensor = module(images).permute(0, 2, 3, 1)
        return pooled.reshape(*inputs.shape[:2], *pooled.shape[1:])

    return apply


def _convolution(module: Any, names: Mapping[int, str], for_compiler: bool) -> Layer | None:
    if (
        isinstance(module.padding, str)
        or module.padding_mode != "zeros"
        or module.groups != 1
        or module.dilation != (1, 1)
    ):
        return None
    weight, bias = names[id(module.weight)], names.get(id(module.bias))
    size, stride, (above, left) = module.kernel_size, module.stride, module.padding
    workspace = Workspace()

    def apply(parameters: Tensors, inputs: torch.Tensor, is_training: bool) -> torch.Tensor:
        if above or left:
            inputs = functional.pad(inputs, (0, 0, left, left, above, above))
        inputs = inputs.contiguous()
        kernels = parameters[weight].flatten(2)
        offsets = kernels.new_zeros(kernels.shape[:2]) if bias is None else parameters[bias]
        if for_compiler:
            return convolve_slices(inputs, kernels, offsets, size, stride)
        result: torch.Tensor = convolve(inputs, kernels, offsets, size, stride, workspace)
        return result

    return apply


_RULES: dict[type[nn.Module], Rule] = {
    nn.Conv2d: partial(_convolution, for_compiler=False),
    nn.Linear: _linear,
    nn.Flatten: _flatten,
    nn.ReLU: _elementwise,
    nn.Sigmoid: _elementwise,
    nn.Tanh: _elementwise,
    nn.GELU: _elementwise,
    nn.Identity: _identity,
    nn.Dropout: _dropout,
    nn.MaxPool2d: _pool,
    nn.AvgPool2d: _pool,
}
_COMPILER_RULES: dict[type[nn.Module], Rule] = {
    **_RULES,
    nn.Conv2d: partial(_convolution, for_compiler=True),
}
