"""The lines to copy: Python, the command line and Flower, for one setting.

The page fills the same templates; a test compares both and runs the lines.
"""

from __future__ import annotations

import math

from jopeq.lab.explorer.grid import PER_ENTRY, Setting

_FLOWER = """\
# client_app.py
import jopeq
from flwr.clientapp import ClientApp
from jopeq.flower import JoPEQ{kind}Mod

{made}
app = ClientApp(mods=[JoPEQ{kind}Mod(scheme)])

# server_app.py, with the same scheme
from flwr.serverapp.strategy import FedAvg
from jopeq.flower import JoPEQ{kind}Strategy

strategy = JoPEQ{kind}Strategy(FedAvg(), scheme)
"""
_PLAN = (
    "jopeq plan --epsilon {epsilon} --rate {rate} --dimension {entries} \\\n"
    "    --rounds {times} --clients {clients} --delta {delta}\n"
)
_SPHERE = """\
# clip: the usual norm of an update
scheme = jopeq.Sphere(epsilon={part}, clip=1.0{more})"""
_SUM = """\
# clip: the usual norm of an update. One client in ten may drop out.
scheme = jopeq.SecureSum(
    epsilon={epsilon}, delta={delta}, clip=1.0, clients={clients},
    threshold={threshold}, participations={times},
)"""
_ENTRY = """\
size = 0.01  # the usual size (root mean square) of an entry
scheme = jopeq.scheme(
    "{scheme}", epsilon={epsilon}, rate={rate}, clip={spread} * size
)"""
_IMPORTS = "import jopeq\nimport numpy as np\n\n"
_START = f"import os\n{_IMPORTS}"
_UPDATE = "update = np.zeros({entries}, np.float32)  # yours\n"


def _in_flower(kind: str, made: str) -> str:
    return _FLOWER.replace("{kind}", kind).replace("{made}", made)


LINES: dict[str, dict[str, str]] = {
    "sphere": {
        "python": f"{_START}{_SPHERE}\n"
        "terms = scheme.round(dimension={entries}, seed=os.urandom(32))\n"
        f"{_UPDATE}"
        "report = terms.report(update, client=0)  # on the device\n"
        "total = terms.aggregator()  # on the server\n"
        "total.add(report, client=0)  # and the others'\n"
        "mean = total.mean()\n"
        "print(scheme.guarantee.for_client({entries}, {times}))\n",
        "cli": f"{_PLAN}jopeq audit --scheme sphere --epsilon {{each}} --parameter clip=1.0\n",
        "flower": _in_flower("", _SPHERE),
    },
    "sum": {
        "python": f"{_START}{_SUM}\n"
        "seed = os.urandom(32)  # of the round, known to all\n"
        f"{_UPDATE}"
        "share = scheme.encode(update, seed=seed)  # send it masked: jopeq.secure\n"
        "print(scheme.plan({entries}).bits, scheme.guarantee)\n",
        "cli": _PLAN,
        "flower": _in_flower("Sum", _SUM),
    },
    "entry": {
        "python": f"{_IMPORTS}{_ENTRY}\n"
        f"{_UPDATE}"
        "payload = scheme.encode(update)  # on the device\n"
        "decoded = scheme.decode(payload)  # on the server\n"
        "print(scheme.guarantee, scheme.guarantee.for_update({entries}))\n",
        "cli": f"{_PLAN}jopeq audit --scheme {{scheme}} --epsilon {{epsilon}} --rate {{rate}}\n",
        "flower": _in_flower("", _ENTRY),
    },
}
MOST_ENTRIES = 1 << 22  # that ``Sphere`` decodes without being told more


def lines(setting: Setting, spread: float | None = None) -> dict[str, str]:
    """The three texts. ``spread`` is the best one, which per-entry schemes need."""
    s = setting
    values = {
        "scheme": s.scheme,
        "epsilon": f"{s.epsilon:g}",
        "part": f"{s.epsilon:g}" if s.times == 1 else f"{s.epsilon:g} / {s.times}",
        "each": f"{math.floor(s.epsilon / s.times * 1e6) / 1e6:g}",
        "delta": f"1e-{round(-math.log10(s.delta))}",
        "clients": str(s.clients),
        "threshold": str(s.threshold),
        "times": str(s.times),
        "entries": str(s.entries),
        "rate": f"{s.rate:g}",
        "spread": "" if spread is None else f"{spread:g}",
        "more": f", max_entries={s.entries}" if s.entries > MOST_ENTRIES else "",
    }
    return {
        kind: text.format(**values)
        for kind, text in LINES["entry" if s.scheme in PER_ENTRY else s.scheme].items()
    }
