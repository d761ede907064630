"""For PyTorch models: exact totals of clipped gradients, and statistics in a model.

``clipped_sum`` adds up every record's clipped gradient exactly, ``scored_sum`` how well a model
does on each, which ``check_scores`` tries on a dummy record first. ``Standardise`` is a first layer
from the answers of ``jopeq.statistics``.
"""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("torch") is None:
    raise ImportError("jopeq.torch needs PyTorch: pip install 'jopeq[torch]'")

from jopeq.torch.clipped_sum import check_scores, clipped_sum, scored_sum
from jopeq.torch.statistics import Standardise

__all__ = ["Standardise", "check_scores", "clipped_sum", "scored_sum"]
