"""The gradient each image alone would make a client send, for many images at once."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd import Function
from torch.func import functional_call, grad, vmap
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from jopeq.federated.models import ModelVector

Shape = tuple[int, int, int]
Tensors = dict[str, torch.Tensor]
Pair = tuple[int, int]
CONVOLUTIONS = ("auto", "native", "products")
MANY = 200  # images from which one copy is faster


class ConvolutionsAsProducts(TorchFunctionMode):
    """Within it, every ``conv2d`` of that many images is a product of patches and kernels."""

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
    """The places of the patches in an image."""

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
    """A linear map that a window defines; its derivative needs the window alone."""

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
    """Patches → images, each pixel the sum over its patches: the transpose of ``_Patches``."""

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


class GradientMap:
    """(images, targets) → gradients of the cross-entropy, one row per image, twice differentiable.

    Parameters
    ----------
    model
        Logits of shape (N, classes). It is copied, and used in evaluation mode: dropout is off and
        batch normalisation uses its running statistics.
    input_shape
        (C, H, W) of an image.
    parameters
        (M, size): parameters of M models to use instead of the model's own, for example of M stages
        of training. ``which`` then says which row each image meets.
    convolutions
        "native", or "products": as one batched matrix product each; "auto" is the latter on a GPU,
        where per-image kernel gradients would be grouped convolutions, in reduced precision.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    >>> gradient_map = GradientMap(model, (1, 2, 2))
    >>> gradient_map(torch.rand(5, 1, 2, 2), torch.eye(3)[[0, 1, 2, 0, 1]]).shape
    torch.Size([5, 15])
    """

    def __init__(
        self,
        model: nn.Module,
        input_shape: Shape,
        *,
        parameters: torch.Tensor | None = None,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
        convolutions: str = "auto",
    ) -> None:
        if convolutions not in CONVOLUTIONS:
            raise ValueError(
                f"convolutions must be one of {', '.join(CONVOLUTIONS)}, got {convolutions!r}"
            )
        self.layout = ModelVector(model)
        self.input_shape = input_shape
        self.dtype, self.device = dtype, torch.device(device)
        self._model = copy.deepcopy(model).to(self.device, dtype).eval()
        for parameter in self._model.parameters():
            parameter.requires_grad_(False)
        own = torch.cat([p.detach().reshape(-1) for p in self._trained(model)])
        values = own[None] if parameters is None else parameters
        if values.ndim != 2 or values.shape[1] != self.layout.size:
            raise ValueError(
                f"parameters must have shape (M, {self.layout.size}), got {tuple(values.shape)}"
            )
        self.parameters = values.to(self.device, dtype)
        is_gpu = self.device.type == "cuda"
        self._are_products = convolutions == "products" or (convolutions == "auto" and is_gpu)
        self.classes = self._count_classes()
        self._rows: Callable[..., Tensors] = self._by_vmap
        self.is_vmapped = self._can_vmap()
        if not self.is_vmapped:
            self._rows = self._one_by_one

    @property
    def size(self) -> int:
        """Entries of a gradient."""
        return self.layout.size

    def __call__(
        self, images: torch.Tensor, targets: torch.Tensor, which: torch.Tensor | None = None
    ) -> torch.Tensor:
        """(N, size) for images (N, C, H, W) and class probabilities (N, classes)."""
        if len(self.parameters) > 1 and which is None:
            raise ValueError(f"which must say which of {len(self.parameters)} models is meant")
        if which is None or len(self.parameters) == 1:
            values, axis = self._named(self.parameters[0]), None
        else:
            values, axis = self._named(self.parameters[which]), 0
        rows = self._rows(values, axis, images, targets)
        return torch.cat([rows[name].flatten(1) for name in self.layout.names], 1)

    def one_hot(self, labels: torch.Tensor) -> torch.Tensor:
        """Labels as class probabilities."""
        return functional.one_hot(labels.to(self.device), self.classes).to(self.dtype)

    def check_depends_on_images(self) -> None:
        """Raise ValueError unless gradients change with the image: attacks follow that change."""
        image = torch.zeros(1, *self.input_shape, dtype=self.dtype, device=self.device)
        first = torch.zeros(1, dtype=torch.int64, device=self.device)
        rows = self(image.requires_grad_(), self.one_hot(first), first)
        slope = None
        if rows.requires_grad:
            (slope,) = torch.autograd.grad(rows.sum(), image, allow_unused=True)
        if slope is None:
            raise ValueError(
                "its gradients do not depend on the image, so there is nothing to attack: compute "
                "the logits from the image, without .detach()"
            )

    def _trained(self, model: nn.Module) -> list[torch.Tensor]:
        found = dict(model.named_parameters())
        return [found[name] for name in self.layout.names]

    def _named(self, vectors: torch.Tensor) -> Tensors:
        pieces = torch.split(vectors, list(self.layout.sizes), dim=-1)
        front = vectors.shape[:-1]
        return {
            name: piece.reshape(*front, *shape)
            for name, shape, piece in zip(
                self.layout.names, self.layout.shapes, pieces, strict=True
            )
        }

    def _loss(
        self, values: Mapping[str, torch.Tensor], image: torch.Tensor, target: torch.Tensor
    ) -> torch.Tensor:
        logits = functional_call(self._model, dict(values), (image[None],))
        return -(target * functional.log_softmax(logits[0], 0)).sum()

    def _by_vmap(
        self, values: Tensors, axis: int | None, images: torch.Tensor, targets: torch.Tensor
    ) -> Tensors:
        way: AbstractContextManager[Any]
        way = ConvolutionsAsProducts(len(images)) if self._are_products else nullcontext()
        with way:
            rows: Tensors = vmap(grad(self._loss), in_dims=(axis, 0, 0))(values, images, targets)
        return rows

    def _one_by_one(
        self, values: Tensors, axis: int | None, images: torch.Tensor, targets: torch.Tensor
    ) -> Tensors:
        rows = []
        for i in range(len(images)):
            mine = values if axis is None else {name: v[i] for name, v in values.items()}
            rows.append(grad(self._loss)(mine, images[i], targets[i]))
        return {name: torch.stack([row[name] for row in rows]) for name in self.layout.names}

    def _count_classes(self) -> int:
        image = torch.zeros(1, *self.input_shape, dtype=self.dtype, device=self.device)
        channels, height, width = self.input_shape
        values = self._named(self.parameters[0].detach().requires_grad_())
        try:
            with torch.enable_grad():
                logits = functional_call(self._model, dict(values), (image,))
        except Exception as error:  # whatever a model of the user's own may raise
            said = f"{type(error).__name__}: {error}".removesuffix(": ")
            raise ValueError(
                f"the model does not take images of {channels} channel(s) and {height}×{width} "
                f"pixels ({said}): check the channel count, or give images it was made for"
            ) from error
        if not isinstance(logits, torch.Tensor) or logits.ndim != 2 or logits.shape[1] < 2:
            raise ValueError(
                "the model must give logits of shape (N, classes), got "
                f"{tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits)}"
            )
        if not logits.requires_grad:
            raise ValueError(
                "the model's logits have no gradient: compute them from its parameters, without "
                "torch.no_grad() and .detach()"
            )
        return int(logits.shape[1])

    def _can_vmap(self) -> bool:
        images = torch.zeros(2, *self.input_shape, dtype=self.dtype, device=self.device)
        targets = self.one_hot(torch.tensor([0, 1]))
        which = torch.zeros(2, dtype=torch.int64, device=self.device)
        try:
            inputs = images.requires_grad_()
            torch.autograd.grad(self(inputs, targets, which).sum(), inputs, allow_unused=True)
        except Exception:  # whatever vmap cannot do, a loop can
            return False
        return True
