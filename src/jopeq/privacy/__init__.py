"""What a scheme promises, to whom, how it adds up, and how noise is chosen to keep the promise."""

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
