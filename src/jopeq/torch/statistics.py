"""Running statistics of normalisation layers, computed anew from data."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

_LAYERS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def recompute_statistics(model: nn.Module, batches: Iterable[torch.Tensor]) -> None:
    """Set all running means and variances to those of these inputs, averaged over the batches.

    For schemes with ``statistics="local"``, whose server never sees statistics: call it with the
    server's public data, or on a client before it evaluates. Weights stay as they are.

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
