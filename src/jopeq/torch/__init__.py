"""jopeq inside PyTorch's own data-parallel training: gradients travel as payloads.

    jopeq.torch.ddp_hook(jopeq.scheme("sdq", rate=4.0)).attach(ddp_model)

See ``jopeq.torch.ddp`` and docs/ddp.md. ``recompute_statistics`` makes the running statistics of
normalisation layers anew from data.
"""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("torch") is None:
    raise ImportError("jopeq.torch needs PyTorch: pip install 'jopeq[torch]'")

from jopeq.torch.ddp import DDPHook, Traffic, ddp_hook
from jopeq.torch.statistics import recompute_statistics

__all__ = ["DDPHook", "Traffic", "ddp_hook", "recompute_statistics"]
