"""Statistics of features in a model, from private answers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from jopeq.statistics import Answers


class Standardise(nn.Module):
    """A first layer, (value − mean)/deviation of each feature, made from private answers.

    Features are the ``columns``, in that order, along the last axis: by default all that were asked
    for Mean and Variance. Values are clipped to the bounds; missing ones (NaN) become 0. The
    numbers are buffers: they are saved with the model and not trained. Instead of answers, a
    number of features makes the layer of a model that will load them, such as a hospital's.
    """

    lower: torch.Tensor
    upper: torch.Tensor
    means: torch.Tensor
    deviations: torch.Tensor

    def __init__(self, answers: Answers | int, columns: Sequence[str] | None = None) -> None:
        super().__init__()
        for name in ("lower", "upper", "means", "deviations"):
            if isinstance(answers, int):
                numbers = torch.full((answers,), torch.nan)
            else:
                numbers = torch.tensor(getattr(answers.scales(columns), name), dtype=torch.float32)
            self.register_buffer(name, numbers)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        clipped = torch.maximum(torch.minimum(values, self.upper), self.lower)
        return torch.nan_to_num((clipped - self.means) / self.deviations)
