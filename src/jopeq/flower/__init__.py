"""jopeq inside Flower: mods for the ClientApp, strategies for the ServerApp.

One client engine (``client``) and one server engine (``server``) have thin fronts: payloads
(``PayloadMod``, ``PayloadStrategy``), sums over clients (``SumMod``, ``SumStrategy``), records
(``record_client``, ``RecordStrategy``; apps of your own answer with ``reply_sample``), surveys
(``survey_client``, ``ask``) and models (``model_client``, ``head_client``, ``fit``).
docs/flower.md tells what is guaranteed against whom.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if find_spec("flwr") is None:
    raise ImportError("jopeq.flower needs Flower: pip install 'jopeq[flower]'")

from jopeq.flower.node import check_node
from jopeq.flower.payload_mod import PayloadMod
from jopeq.flower.payload_strategy import PayloadStrategy
from jopeq.flower.queries import ask, fit, model_client, survey_client
from jopeq.flower.server import RoundFailedError, RoundReport
from jopeq.flower.sum_mod import SumMod, reply_sample, reply_table, reply_total
from jopeq.flower.sum_strategy import SumStrategy
from jopeq.schemes.model import find_frozen

if TYPE_CHECKING:
    from jopeq.flower.record_strategy import RecordStrategy
    from jopeq.flower.torch_clients import head_client, record_client

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
    "find_frozen",
    "fit",
    "head_client",
    "model_client",
    "record_client",
    "reply_sample",
    "reply_table",
    "reply_total",
    "survey_client",
]

_NEED_TORCH = {
    "RecordStrategy": "record_strategy",
    "head_client": "torch_clients",
    "record_client": "torch_clients",
}


def __getattr__(name: str) -> Any:
    """Import names that need PyTorch when they are first asked for."""
    if name not in _NEED_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"jopeq.flower.{_NEED_TORCH[name]}"), name)
