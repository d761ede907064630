"""Encode, decode, guarantee: one file a family of schemes, their registry, state and aggregate.

Imports ``privacy``, ``kernels``, ``wire`` and below.
"""

from jopeq.schemes.base import Opened, Scheme, Statistics
from jopeq.schemes.registry import SCHEMES, scheme, scheme_from_spec

__all__ = ["SCHEMES", "Opened", "Scheme", "Statistics", "scheme", "scheme_from_spec"]
