"""Reading the label off the last layer's gradient (iDLG, Zhao et al. 2020)."""

from __future__ import annotations

import torch

from jopeq.federated.vector import ModelVector


def infer_labels(gradients: torch.Tensor, layout: ModelVector, classes: int) -> torch.Tensor:
    """The class whose row of the last weight matrix has the smallest sum (N,).

    The cross-entropy's gradient with respect to logit c is p_c − [c is the label]: negative for the
    label alone. Row c of the last dense layer's gradient is that times the layer's inputs, which
    are positive after a sigmoid or ReLU. Without such a matrix the last layer's bias is read.

    >>> layout = ModelVector(torch.nn.Linear(2, 3))
    >>> infer_labels(torch.tensor([[1.0, 2, -3, -4, 5, 6, 0, 0, 0]]), layout, classes=3)
    tensor([1])
    """
    pieces = torch.split(gradients, list(layout.sizes), dim=1)
    for shape, piece in reversed(list(zip(layout.shapes, pieces, strict=True))):
        if len(shape) == 2 and shape[0] == classes:
            return piece.reshape(-1, *shape).sum(2).argmin(1)
    for shape, piece in reversed(list(zip(layout.shapes, pieces, strict=True))):
        if shape == (classes,):
            return piece.argmin(1)
    raise ValueError(
        f"no label can be inferred: the model has no weight matrix or bias of {classes} rows; "
        "use method 'dlg', or 'label' with the true labels"
    )
