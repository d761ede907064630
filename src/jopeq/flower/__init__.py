"""jopeq inside Flower: a mod for the ClientApp and a wrapper for the server's strategy.

Two lines turn a Flower app into one whose updates are compressed and private::

    app = ClientApp(mods=[JoPEQMod(scheme)])            # client_app.py
    strategy = JoPEQStrategy(FedAvg(), scheme)          # server_app.py

``JoPEQSumMod`` and ``JoPEQSumStrategy`` do the same for a secure sum (``jopeq.ClientSum``), of
which the server learns the mean alone. ``record_client`` and ``RecordStrategy`` train a PyTorch
model on hospitals' records (``jopeq.RecordSum``); ``RecordMod`` is for apps of your own.
``survey_client`` and ``ask`` answer questions about the records (``jopeq.statistics.Survey``).
docs/flower.md tells the settings and what is guaranteed against whom.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if find_spec("flwr") is None:
    raise ImportError("jopeq.flower needs Flower: pip install 'jopeq[flower]'")

from jopeq.flower.mod import JoPEQMod
from jopeq.flower.record_mod import RecordMod, reply_table, reply_total
from jopeq.flower.settings import Settings
from jopeq.flower.strategy import JoPEQStrategy
from jopeq.flower.sum_mod import JoPEQSumMod
from jopeq.flower.sum_strategy import JoPEQSumStrategy
from jopeq.flower.survey import ask, survey_client
from jopeq.flower.wrapper import RoundFailedError, RoundReport

if TYPE_CHECKING:
    from jopeq.flower.record_app import record_client
    from jopeq.flower.record_strategy import RecordStrategy

__all__ = [
    "JoPEQMod",
    "JoPEQStrategy",
    "JoPEQSumMod",
    "JoPEQSumStrategy",
    "RecordMod",
    "RecordStrategy",
    "RoundFailedError",
    "RoundReport",
    "Settings",
    "ask",
    "record_client",
    "reply_table",
    "reply_total",
    "survey_client",
]

_NEED_TORCH = {"record_client": "record_app", "RecordStrategy": "record_strategy"}


def __getattr__(name: str) -> Any:
    """What needs PyTorch is imported when it is first asked for."""
    if name not in _NEED_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"jopeq.flower.{_NEED_TORCH[name]}"), name)
