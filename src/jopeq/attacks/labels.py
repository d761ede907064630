"""Labels: those given, and reading them off the last layer's gradient (iDLG, Zhao et al. 2020)."""

from __future__ import annotations

import torch

from jopeq.federated.models import ModelVector


def checked_labels(labels: torch.Tensor, count: int, classes: int) -> torch.Tensor:
    """``count`` integers from 0 to ``classes`` − 1, as int64, or an error that says what they are.

    >>> checked_labels(torch.tensor([2, 0], dtype=torch.uint8), 2, classes=3)
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

    Through a noisy payload the bias is a single noisy number per class, while the sum of a row of
    the matrix averages the noise over all inputs. It is therefore read instead where the two do not
    fit together, that is where the bias, times whatever inputs, explains less than half of the
    matrix; or where there is no bias. Row sums have the sign of δ only where the inputs are
    positive, as they are after a sigmoid or ReLU, but not after tanh.

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
