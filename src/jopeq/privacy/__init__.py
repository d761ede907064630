"""What a scheme promises, to whom, and how noise is chosen so that it keeps the promise."""

from jopeq.privacy.guarantee import Guarantee

__all__ = ["Guarantee"]
