"""Federated updates compressed to R bits per entry and made private before they leave the device.

>>> import numpy as np, jopeq
>>> s = jopeq.JoPEQ(epsilon=4.0, rate=1.0)  # or jopeq.scheme("jopeq", epsilon=4.0, rate=1.0)
>>> payload = s.encode(np.linspace(-1, 1, 1000, dtype=np.float32))
>>> s.decode(payload).shape
(1000,)

Names that fewer programs need are in the rooms: ``jopeq.entries`` (noise, baselines, clips),
``jopeq.sphere`` (rounds of reports), ``jopeq.lattice``, ``jopeq.schemes``, ``jopeq.registry``.
``jopeq.plan`` and the packages ``jopeq.torch``, ``jopeq.flower``, ``jopeq.circle`` and
``jopeq.statistics`` are imported when they are first used: ``import jopeq`` loads NumPy alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from jopeq.analysis.audit import audit
from jopeq.entries import JoPEQ, Response, SubtractiveDither, Uncompressed
from jopeq.errors import (
    BudgetExceededError,
    JoPEQError,
    MissingSecretError,
    PayloadError,
    StateMismatchError,
    UpdateError,
)
from jopeq.ledger import Ledger
from jopeq.privacy import Guarantee
from jopeq.registry import register, scheme, scheme_from_spec
from jopeq.schemes import Scheme
from jopeq.schemes.aggregate import aggregate
from jopeq.schemes.model import state_update, updated_state
from jopeq.sphere import Sphere
from jopeq.sums.clipped_total import ClippedTotal
from jopeq.sums.record_sum import ClientSum, RecordSum
from jopeq.versions import __version__

if TYPE_CHECKING:
    from jopeq import circle as circle
    from jopeq import flower as flower
    from jopeq import models as models
    from jopeq import statistics as statistics
    from jopeq import torch as torch
    from jopeq.analysis.plan import plan as plan

__all__ = [
    "BudgetExceededError",
    "ClientSum",
    "ClippedTotal",
    "Guarantee",
    "JoPEQ",
    "JoPEQError",
    "Ledger",
    "MissingSecretError",
    "PayloadError",
    "RecordSum",
    "Response",
    "Scheme",
    "Sphere",
    "StateMismatchError",
    "SubtractiveDither",
    "Uncompressed",
    "UpdateError",
    "__version__",
    "aggregate",
    "audit",
    "plan",
    "register",
    "scheme",
    "scheme_from_spec",
    "state_update",
    "updated_state",
]


_LATER = ("circle", "flower", "models", "plan", "statistics", "torch")


def __getattr__(name: str) -> Any:
    if name == "plan":
        return import_module("jopeq.analysis.plan").plan
    if name in _LATER:
        return import_module(f"jopeq.{name}")
    raise AttributeError(f"module 'jopeq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
