"""Promises of schemes, how they add up, and how much noise keeps them.

Imports ``wire`` and below.
"""

from jopeq.privacy.accounting import Composition, Mechanism
from jopeq.privacy.guarantee import Guarantee

__all__ = [
    "Composition",
    "Guarantee",
    "Mechanism",
]
