"""Federated updates compressed to R bits per entry and made private before they leave the device.

>>> import numpy as np, jopeq
>>> s = jopeq.JoPEQ(epsilon=4.0, rate=1.0)  # or jopeq.scheme("jopeq", epsilon=4.0, rate=1.0)
>>> payload = s.encode(np.linspace(-1, 1, 1000, dtype=np.float32))
>>> s.decode(payload).shape
(1000,)

``jopeq.plan`` and the packages ``jopeq.torch``, ``jopeq.flower``, ``jopeq.federated``,
``jopeq.secure`` and ``jopeq.attacks`` are imported when they are first used: ``import jopeq``
loads NumPy alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from jopeq.analysis.audit import Audit, audit
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
from jopeq.privacy import AdaptiveClip, Guarantee, Ledger
from jopeq.schemes import SCHEMES, Opened, Scheme, Statistics, scheme, scheme_from_spec
from jopeq.schemes.additive import GaussianNoise, LaplaceNoise, RadialNoise, StudentNoise
from jopeq.schemes.aggregate import aggregate
from jopeq.schemes.channelled import MinimumVarianceUnbiased, Response
from jopeq.schemes.groups import Groups
from jopeq.schemes.layers import LayerClips
from jopeq.schemes.model import state_update, updated_state
from jopeq.schemes.none import Uncompressed
from jopeq.schemes.quantized import (
    GaussianThenDither,
    JoPEQ,
    LaplaceThenDither,
    NonSubtractiveDither,
    RadialThenDither,
    StudentThenDither,
    SubtractiveDither,
)
from jopeq.schemes.recommend import Recommendation, recommend
from jopeq.schemes.round import Aggregator, Round
from jopeq.schemes.secure_sum import SecureSum
from jopeq.schemes.sphere import Sphere
from jopeq.schemes.staircase import Staircase
from jopeq.schemes.state import decode_state, encode_state, opened_state
from jopeq.schemes.sum_plan import SumPlan
from jopeq.versions import __version__

if TYPE_CHECKING:
    from jopeq import attacks as attacks
    from jopeq import federated as federated
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
    "Groups",
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
    "Recommendation",
    "Response",
    "Round",
    "Scheme",
    "SecureSum",
    "Sphere",
    "Staircase",
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
    "recommend",
    "scheme",
    "scheme_from_spec",
    "state_update",
    "updated_state",
]


_LATER = ("attacks", "federated", "flower", "plan", "secure", "torch")


def __getattr__(name: str) -> Any:
    if name == "plan":
        return import_module("jopeq.analysis.plan").plan
    if name in _LATER:
        return import_module(f"jopeq.{name}")
    raise AttributeError(f"module 'jopeq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
