"""jopeq inside PyTorch: exact totals of clipped gradients, and data-parallel training.

``clipped_sum`` is the exact total of every record's clipped gradient. In data-parallel training
gradients travel as payloads:

    jopeq.torch.ddp_hook(jopeq.scheme("sdq", rate=4.0)).attach(ddp_model)

See ``jopeq.torch.ddp`` and docs/ddp.md. ``recompute_statistics`` makes the running statistics of
normalisation layers anew from data.
"""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("torch") is None:
    raise ImportError("jopeq.torch needs PyTorch: pip install 'jopeq[torch]'")

from jopeq.torch.clipped_sum import clipped_sum
from jopeq.torch.ddp import DDPHook, Traffic, ddp_hook
from jopeq.torch.statistics import recompute_statistics

__all__ = ["DDPHook", "Traffic", "clipped_sum", "ddp_hook", "recompute_statistics"]
