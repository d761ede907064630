"""jopeq inside Flower: mods for the ClientApp and strategies for the ServerApp.

One client engine (``client``) and one server engine (``report``, ``sum_server``) have thin fronts:

- payloads: ``PayloadMod`` compresses each update, with privacy against the server if the scheme
  has it, and ``PayloadStrategy`` wraps any of Flower's strategies;
- sums over clients: ``SumMod`` and ``SumStrategy`` with a ``jopeq.ClientSum``, of which the server
  learns the mean alone;
- records: ``record_client`` and ``RecordStrategy`` train a PyTorch model on hospitals' records
  (``jopeq.RecordSum``); ``SumMod`` and ``reply_total`` are for apps of your own;
- surveys: ``survey_client`` and ``ask`` answer questions about the records
  (``jopeq.statistics.Survey``).

Two lines turn a Flower app into one whose updates are compressed and private::

    app = ClientApp(mods=[PayloadMod(scheme)])            # client_app.py
    strategy = PayloadStrategy(FedAvg(), scheme)          # server_app.py

docs/flower.md tells the settings and what is guaranteed against whom.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if find_spec("flwr") is None:
    raise ImportError("jopeq.flower needs Flower: pip install 'jopeq[flower]'")

from jopeq.flower.node import check_node
from jopeq.flower.payload_mod import PayloadMod
from jopeq.flower.payload_strategy import PayloadStrategy
from jopeq.flower.report import RoundFailedError, RoundReport
from jopeq.flower.sum_mod import SumMod, reply_table, reply_total
from jopeq.flower.sum_strategy import SumStrategy
from jopeq.flower.survey import ask, survey_client

if TYPE_CHECKING:
    from jopeq.flower.record_app import record_client
    from jopeq.flower.record_strategy import RecordStrategy

__all__ = [
    "PayloadMod",
    "PayloadStrategy",
    "RecordStrategy",
    "RoundFailedError",
    "RoundReport",
    "SumMod",
    "SumStrategy",
    "ask",
    "check_node",
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
