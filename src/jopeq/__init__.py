"""Federated updates compressed to R bits per number and made private before they leave the device.

>>> import numpy as np, jopeq
>>> s = jopeq.scheme("jopeq", epsilon=4.0, rate=1.0)
>>> payload = s.encode(np.linspace(-1, 1, 1000, dtype=np.float32))
>>> s.decode(payload).shape
(1000,)
"""

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
from jopeq.schemes.aggregate import aggregate
from jopeq.schemes.state import decode_state, encode_state, opened_state
from jopeq.versions import __version__

__all__ = [
    "SCHEMES",
    "AdaptiveClip",
    "Audit",
    "BudgetExceededError",
    "DesignError",
    "Guarantee",
    "JoPEQError",
    "Lattice",
    "Ledger",
    "MissingKeyError",
    "Opened",
    "PayloadError",
    "Scheme",
    "StateMismatchError",
    "Statistics",
    "UpdateError",
    "__version__",
    "aggregate",
    "audit",
    "decode_state",
    "encode_state",
    "opened_state",
    "scheme",
    "scheme_from_spec",
]
