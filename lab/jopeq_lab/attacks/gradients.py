"""The gradient each image alone would make a client send, for many images at once."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import AbstractContextManager

import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from jopeq_lab.training.models import ModelVector

Shape = tuple[int, int, int]
Tensors = dict[str, torch.Tensor]


def exact_convolutions() -> AbstractContextManager[None]:
    """Within it a GPU's convolutions keep all digits of float32: PyTorch would round to ten bits.

    Enclose the backward pass too.
    """
    flags: AbstractContextManager[None]
    flags = torch.backends.cudnn.flags(enabled=True, allow_tf32=False)
    return flags


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
    ) -> None:
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
        self.classes = self._count_classes()
        self._check_vmap()

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
        rows: Tensors = vmap(grad(self._loss), in_dims=(axis, 0, 0))(values, images, targets)
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

    def _check_vmap(self) -> None:
        images = torch.zeros(2, *self.input_shape, dtype=self.dtype, device=self.device)
        which = torch.zeros(2, dtype=torch.int64, device=self.device)
        try:
            self(images, self.one_hot(torch.tensor([0, 1])), which)
        except Exception as error:  # whatever a model of the user's own may raise
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            raise ValueError(f"torch.func.vmap cannot run the model ({said})") from error
