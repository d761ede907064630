"""What a scheme promises, to whom, how promises add up, and how much noise keeps them.

Imports ``wire`` and below. The ledger takes any object that has the protocol of a scheme.
"""

from jopeq.privacy.accounting import (
    Composition,
    Mechanism,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
)
from jopeq.privacy.adaptive_clip import AdaptiveClip
from jopeq.privacy.guarantee import Guarantee
from jopeq.privacy.ledger import Ledger

__all__ = [
    "AdaptiveClip",
    "Composition",
    "Guarantee",
    "Ledger",
    "Mechanism",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_sigma",
]
