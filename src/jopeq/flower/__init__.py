"""jopeq inside Flower: a mod for the ClientApp and a wrapper for the server's strategy.

Two lines turn a Flower app into one whose updates are compressed and private::

    app = ClientApp(mods=[JoPEQMod(scheme)])            # client_app.py
    strategy = JoPEQStrategy(FedAvg(), scheme)          # server_app.py

``JoPEQSumMod`` and ``JoPEQSumStrategy`` do the same for a secure sum (``jopeq.SecureSum``), of
which the server learns the mean alone. docs/flower.md tells the settings and what is guaranteed
against whom.
"""

from importlib.util import find_spec

if find_spec("flwr") is None:
    raise ImportError("jopeq.flower needs Flower: pip install 'jopeq[flower]'")

from jopeq.flower.mod import JoPEQMod
from jopeq.flower.settings import Settings
from jopeq.flower.strategy import JoPEQStrategy
from jopeq.flower.sum_mod import JoPEQSumMod
from jopeq.flower.sum_strategy import JoPEQSumStrategy
from jopeq.flower.wrapper import RoundFailedError, RoundReport

__all__ = [
    "JoPEQMod",
    "JoPEQStrategy",
    "JoPEQSumMod",
    "JoPEQSumStrategy",
    "RoundFailedError",
    "RoundReport",
    "Settings",
]
