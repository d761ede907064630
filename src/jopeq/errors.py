"""Every error jopeq raises on purpose. Bad parameters are plain ``ValueError``s.

Programs compare ``error.code``, a short word that stays the same. Only people read the sentence.
"""

from __future__ import annotations

from collections.abc import Iterable


class JoPEQError(Exception):
    """Base of all; ``code`` is the class's, or a more specific one.

    >>> PayloadError("cut off").code, PayloadError("a wrong tag", code="forged").code
    ('payload', 'forged')
    """

    code = "error"

    def __init__(self, *given: object, code: str | None = None) -> None:
        super().__init__(*given)
        if code is not None:
            self.code = code


class UpdateError(JoPEQError, ValueError):
    """The update cannot be encoded; nothing was sent."""

    code = "update"


class PayloadError(JoPEQError, ValueError):
    """The bytes are not a payload this decoder accepts; nothing was decoded."""

    code = "payload"


class MissingSecretError(PayloadError):
    """The payload's dither is derived from a secret that was not given."""

    code = "missing-secret"


class StateMismatchError(PayloadError):
    """A decoded state and the state it should fit differ; the message names the tensor."""

    code = "state-mismatch"


class DesignError(JoPEQError):
    """A channel or calibration could not be solved, or its solution failed verification."""

    code = "design"


class PlanError(JoPEQError, ValueError):
    """No plan of a secure sum holds these parameters.

    Codes: ``room`` (the bits cannot hold the sum), ``tables`` (the noise tables are too coarse),
    ``plan`` (ε cannot be met).
    """

    code = "plan"


class BudgetExceededError(JoPEQError):
    """The privacy budget does not allow it; nothing was encoded.

    Codes: ``no-guarantee`` (the scheme has no finite ε), ``norm`` (without a clip the norm leaves
    in the clear), ``needs-delta`` (the budget's δ is 0),
    ``ledger-lost`` (the ledger's file is gone, or an older copy), ``ledger-settings`` (the ledger
    was made for other settings).
    """

    code = "budget"


class BudgetSpentError(BudgetExceededError):
    """The rest of the budget does not pay for one more update; nothing was encoded."""

    code = "budget-spent"


class LedgerError(JoPEQError, ValueError):
    """A ledger is used for what it does not count.

    Codes: ``scheme`` (it keeps to another scheme), ``unit`` (a guarantee it cannot count),
    ``norm`` (a scheme that sends the norm in the clear), ``process`` (it belongs to another
    process), ``changed`` (another copy has written the file), ``damaged`` (the text is no ledger).
    """

    code = "ledger"


class DataError(JoPEQError):
    """A data set is missing, incomplete or corrupted; the message names the file and the remedy.

    Codes of tables that are asked for statistics: ``table`` (no table), ``column`` (a column is
    not there), ``text`` (a column of numbers has something else), ``records`` (more than
    the survey allows).
    """

    code = "data"


class ProtocolError(JoPEQError, ValueError):
    """A message of the secure sum is refused; nothing was sent or opened.

    ``clients`` are those whose messages caused it, as far as that can be told.
    """

    def __init__(self, message: str = "", *, clients: Iterable[int] = ()) -> None:
        super().__init__(message)
        self.clients = tuple(clients)

    code = "protocol"


class TooFewClientsError(ProtocolError):
    """Fewer clients than the threshold are left: the sum stays closed."""

    code = "too-few-clients"
