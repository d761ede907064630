"""Every error jopeq raises on purpose. Bad parameters are plain ``ValueError``s."""

from __future__ import annotations

from collections.abc import Iterable


class JoPEQError(Exception):
    """Base of all errors that are about jopeq's own work."""


class UpdateError(JoPEQError, ValueError):
    """The update cannot be encoded; nothing was sent.

    Integers and too many axes always, NaN and too large numbers only where the scheme names no ε or
    ``on_invalid="raise"`` was asked for.
    """


class PayloadError(JoPEQError, ValueError):
    """The bytes are not a payload this decoder accepts; nothing was decoded."""


class MissingKeyError(PayloadError):
    """The payload's dither is derived from a key that was not given."""


class StateMismatchError(PayloadError):
    """A decoded state and the state it should fit differ; the message names the key."""


class DesignError(JoPEQError):
    """A channel or calibration could not be solved, or its solution failed verification."""


class BudgetExceededError(JoPEQError):
    """The privacy budget is spent; nothing was encoded."""


class BudgetSpentError(BudgetExceededError):
    """What is left of the budget does not pay for one more update; nothing was encoded."""


class DataError(JoPEQError):
    """A data set is missing, incomplete or corrupted; the message names the file and the remedy."""


class ProtocolError(JoPEQError, ValueError):
    """A message of the secure sum is refused; nothing was sent or opened.

    ``clients`` are those whose messages caused it, as far as that can be told.
    """

    def __init__(self, message: str = "", *, clients: Iterable[int] = ()) -> None:
        super().__init__(message)
        self.clients = tuple(clients)


class TooFewClientsError(ProtocolError):
    """Fewer clients than the threshold are left: the sum stays closed."""
