"""Encode, decode, guarantee: one file a family of schemes, their registry, state and aggregate.

Imports ``privacy``, ``kernels``, ``wire`` and below.
"""

from jopeq.schemes.base import Scheme, Statistics
from jopeq.schemes.opened import Opened
from jopeq.schemes.registry import SCHEMES, parameters_of, scheme, scheme_from_spec

__all__ = [
    "SCHEMES",
    "Opened",
    "Scheme",
    "Statistics",
    "parameters_of",
    "scheme",
    "scheme_from_spec",
]
