"""Federated updates compressed to R bits per entry and made private before they leave the device.

>>> import numpy as np, jopeq
>>> s = jopeq.JoPEQ(epsilon=4.0, rate=1.0)  # or jopeq.scheme("jopeq", epsilon=4.0, rate=1.0)
>>> payload = s.encode(np.linspace(-1, 1, 1000, dtype=np.float32))
>>> s.decode(payload).shape
(1000,)

``jopeq.plan`` and the packages ``jopeq.torch``, ``jopeq.flower`` and ``jopeq.secure`` are imported
when they are first used: ``import jopeq`` loads NumPy alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from jopeq.analysis.audit import Audit, audit
from jopeq.entries.adaptive_clip import AdaptiveClip
from jopeq.entries.additive import GaussianNoise, LaplaceNoise, RadialNoise, StudentNoise
from jopeq.entries.channelled import MinimumVarianceUnbiased, Response
from jopeq.entries.layer_clips import LayerClips
from jopeq.entries.quantized import (
    GaussianThenDither,
    JoPEQ,
    LaplaceThenDither,
    NonSubtractiveDither,
    RadialThenDither,
    StudentThenDither,
    SubtractiveDither,
)
from jopeq.entries.uncompressed import Uncompressed
from jopeq.errors import (
    BudgetExceededError,
    DesignError,
    JoPEQError,
    MissingKeyError,
    PayloadError,
    StateMismatchError,
    UpdateError,
)
from jopeq.lattice.lattices import Lattice
from jopeq.ledger import Ledger
from jopeq.privacy import Guarantee
from jopeq.registry import SCHEMES, scheme, scheme_from_spec
from jopeq.schemes.aggregate import aggregate
from jopeq.schemes.base import Scheme, Statistics
from jopeq.schemes.model import state_update, updated_state
from jopeq.schemes.opened import Opened
from jopeq.schemes.state import decode_state, encode_state, opened_state
from jopeq.sphere.round import Aggregator, Round
from jopeq.sphere.sphere import Sphere
from jopeq.sums.secure_sum import SecureSum
from jopeq.sums.sum_plan import SumPlan
from jopeq.versions import __version__

if TYPE_CHECKING:
    from jopeq import flower as flower
    from jopeq import secure as secure
    from jopeq import torch as torch
    from jopeq.analysis.plan import plan as plan

__all__ = [
    "SCHEMES",
    "AdaptiveClip",
    "Aggregator",
    "Audit",
    "BudgetExceededError",
    "DesignError",
    "GaussianNoise",
    "GaussianThenDither",
    "Guarantee",
    "JoPEQ",
    "JoPEQError",
    "LaplaceNoise",
    "LaplaceThenDither",
    "Lattice",
    "LayerClips",
    "Ledger",
    "MinimumVarianceUnbiased",
    "MissingKeyError",
    "NonSubtractiveDither",
    "Opened",
    "PayloadError",
    "RadialNoise",
    "RadialThenDither",
    "Response",
    "Round",
    "Scheme",
    "SecureSum",
    "Sphere",
    "StateMismatchError",
    "Statistics",
    "StudentNoise",
    "StudentThenDither",
    "SubtractiveDither",
    "SumPlan",
    "Uncompressed",
    "UpdateError",
    "__version__",
    "aggregate",
    "audit",
    "decode_state",
    "encode_state",
    "opened_state",
    "scheme",
    "scheme_from_spec",
    "state_update",
    "updated_state",
]


_LATER = ("flower", "plan", "secure", "torch")


def __getattr__(name: str) -> Any:
    if name == "plan":
        return import_module("jopeq.analysis.plan").plan
    if name in _LATER:
        return import_module(f"jopeq.{name}")
    raise AttributeError(f"module 'jopeq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
