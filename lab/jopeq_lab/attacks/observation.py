"""The server's view: gradients of single images through real payloads, and labels in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from jopeq.random.streams import PrivateStream, fresh_seed
from jopeq.schemes.base import Scheme
from jopeq.sphere import Round, Sphere
from jopeq_lab.attacks.gradients import GradientMap, exact_convolutions
from jopeq_lab.attacks.likelihood import Likelihood, decode_report, likelihood
from jopeq_lab.training.models import ModelVector


@dataclass(frozen=True, eq=False)
class Observation:
    """The payloads of one image each, and the gradients (N, d) decoded from them.

    ``schemes`` has the scheme of each, or the round, where the payload is a report of a ``Sphere``.
    """

    schemes: tuple[Scheme | Round, ...]
    payloads: tuple[bytes, ...]
    gradients: torch.Tensor

    def __len__(self) -> int:
        return len(self.payloads)

    def likelihood(self) -> Likelihood:
        """The payloads' likelihood for an attacker who knows scheme, seed and scale."""
        return likelihood(self.schemes, self.payloads)

    @classmethod
    def join(cls, parts: Sequence[Observation]) -> Observation:
        """Join observations, to attack them together."""
        return cls(
            tuple(scheme for part in parts for scheme in part.schemes),
            tuple(payload for part in parts for payload in part.payloads),
            torch.cat([part.gradients for part in parts]),
        )


def true_gradients(
    gradient_map: GradientMap,
    images: torch.Tensor,
    labels: torch.Tensor,
    which: torch.Tensor | None = None,
) -> torch.Tensor:
    """The gradients (N, d) that clients with one image each would send."""
    if images.ndim != 4 or not len(images):
        raise ValueError(
            f"images must be (N, C, H, W) with at least one image, got shape {tuple(images.shape)}"
        )
    labels = check_labels(labels, len(images), gradient_map.classes)
    device, dtype = gradient_map.device, gradient_map.dtype
    with torch.no_grad(), exact_convolutions():
        found = gradient_map(
            images.to(device, dtype),
            gradient_map.one_hot(labels),
            None if which is None else which.to(device),
        )
    if not bool(found.isfinite().all()):
        raise ValueError("the model's gradients are not finite: its weights or images are not")
    return found


def observe(
    scheme: Scheme | Sphere,
    gradients: torch.Tensor,
    layout: ModelVector,
    noise: Sequence[PrivateStream] | None = None,
) -> Observation:
    """Encode and decode each row. ``noise`` fixes the noise: for tests only."""
    if gradients.ndim != 2 or not len(gradients):
        raise ValueError(
            "gradients must be (N, d), one row for each of at least one image, got shape "
            f"{tuple(gradients.shape)}"
        )
    rows = list(gradients.double().cpu().numpy())
    streams = [None] * len(rows) if noise is None else noise
    sent = [_sent(scheme, row, layout, stream) for row, stream in zip(rows, streams, strict=True)]
    schemes, payloads, decoded = zip(*sent, strict=True)
    return Observation(schemes, payloads, torch.stack([torch.from_numpy(back) for back in decoded]))


Sent = tuple["Scheme | Round", bytes, NDArray[np.float32]]


def _sent(
    scheme: Scheme | Sphere,
    gradient: NDArray[np.float64],
    layout: ModelVector,
    noise: PrivateStream | None,
) -> Sent:
    if isinstance(scheme, Sphere):
        terms = scheme.round(dimension=len(gradient), seed=fresh_seed(), people=1)
        report = terms.report(gradient, client=0, noise=noise)
        return terms, report, decode_report(terms, report).astype(np.float32)
    if scheme.per != "tensor":
        payload = scheme.encode(gradient, noise=noise, on_invalid="raise")
        return scheme, payload, scheme.decode(payload)
    pieces = np.split(gradient, np.cumsum(layout.sizes)[:-1])
    named = zip(layout.names, layout.shapes, pieces, strict=True)
    state = {name: piece.reshape(shape) for name, shape, piece in named}
    payload = scheme.encode(state, noise=noise, on_invalid="raise")
    back = scheme.decode(payload, like=state).values()
    return scheme, payload, np.concatenate([piece.reshape(-1) for piece in back]).astype(np.float32)


def check_labels(labels: torch.Tensor, count: int, classes: int) -> torch.Tensor:
    """``count`` integers from 0 to ``classes`` − 1, as int64, or an error that says what they are.

    >>> check_labels(torch.tensor([2, 0], dtype=torch.uint8), 2, classes=3)
    tensor([2, 0])
    """
    if not isinstance(labels, torch.Tensor) or labels.shape != (count,):
        shown = tuple(labels.shape) if isinstance(labels, torch.Tensor) else type(labels).__name__
        raise ValueError(f"labels must be a tensor with one per image, ({count},), got {shown}")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ValueError(f"labels must be integers, got {labels.dtype}: convert them by .long()")
    labels = labels.long()
    wrong = labels[(labels < 0) | (labels >= classes)]
    if len(wrong):
        raise ValueError(
            f"labels must be from 0 to {classes - 1}, as the model has {classes} classes, got "
            f"{int(wrong[0])}"
        )
    return labels


def infer_labels(gradients: torch.Tensor, layout: ModelVector, classes: int) -> torch.Tensor:
    """The class whose entry of the last layer's gradient is negative (N,).

    The cross-entropy's gradient with respect to logit c is δ_c = p_c − [c is the label]: negative
    for the label alone. The last layer's bias has the gradient δ, whatever the model, and its
    matrix has δ hᵀ, with h the layer's inputs. So the least entry of the bias is the label.

    Through a noisy payload the bias is one noisy entry per class, while the sum of a row of the
    matrix averages the noise over all inputs. Row sums are therefore read where there is no bias,
    and where bias and matrix do not fit together: where the bias, times any inputs, explains less
    than half of the matrix. Row sums have the sign of δ only where the inputs are positive, as
    after a sigmoid or ReLU, but not after tanh.

    >>> layout = ModelVector(torch.nn.Linear(2, 3))
    >>> matrix, bias = [-0.4, 0.1, 0.8, -0.2, -0.4, 0.1], [0.2, -0.4, 0.2]
    >>> infer_labels(torch.tensor([matrix + bias, matrix + [0.0] * 3]), layout, classes=3)
    tensor([1, 0])
    """
    pieces = torch.split(gradients.double(), list(layout.sizes), dim=1)
    found = [piece.reshape(-1, *shape) for shape, piece in zip(layout.shapes, pieces, strict=True)]
    for place in reversed(range(len(found))):
        if _is_matrix(found[place], classes):
            return found[place].sum(2).argmin(1)
        if found[place].shape[1:] == (classes,):
            bias = found[place]
            if place and _is_matrix(found[place - 1], classes):
                return _by_both(found[place - 1], bias)
            return bias.argmin(1)
    raise ValueError(
        f"no label can be inferred: the model has no weight matrix or bias of {classes} rows; "
        "use method 'dlg', or 'label' with the true labels"
    )


def _is_matrix(piece: torch.Tensor, classes: int) -> bool:
    return piece.ndim == 3 and piece.shape[1] == classes


def _by_both(matrix: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    # the least squares fit of bias · inputsᵀ to the matrix has the energy ‖matrixᵀ bias‖²/‖bias‖²
    together = torch.einsum("ncf,nc->nf", matrix, bias).square().sum(1)
    energies = matrix.square().sum((1, 2)) * bias.square().sum(1)
    is_clear = bias.any(1) & (together >= 0.5 * energies)
    return torch.where(is_clear, bias.argmin(1), matrix.sum(2).argmin(1))
