"""Statistics in a model: of normalisation layers, anew from data; of features, from answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import nn

from jopeq.statistics import Answers

_LAYERS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def recompute_statistics(model: nn.Module, batches: Iterable[torch.Tensor]) -> None:
    """Set all running means and variances to those of these inputs, averaged over the batches.

    For a model whose statistics came with noise: call it with the server's public data, or on a
    client before it evaluates. Weights stay as they are.

    >>> model = nn.Sequential(nn.BatchNorm1d(2))
    >>> recompute_statistics(model, [torch.tensor([[0.0, 1.0], [2.0, 5.0]])])
    >>> model[0].running_mean.tolist(), model.training
    ([1.0, 3.0], True)
    """
    layers = [m for m in model.modules() if isinstance(m, _LAYERS) and m.track_running_stats]
    was_training = {module: module.training for module in model.modules()}
    momenta = [layer.momentum for layer in layers]
    model.eval()  # dropout stays off
    try:
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # a plain mean over batches
            layer.train()
        with torch.no_grad():
            for batch in batches:
                model(batch)
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
        for module, training in was_training.items():
            module.training = training


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
