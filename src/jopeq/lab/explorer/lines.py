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
_RECORDS = """\
# clip: the usual norm of one patient's gradient
scheme = jopeq.RecordSum(
    epsilon={epsilon}, delta=1e-5, clip=1.0, records={patients}, sampling={sampling},
    rounds={times}, clients={clients}, threshold={half},
)"""
_RECORD_FLOWER = f"""\
# client_app.py
import jopeq
import jopeq.flower
import torch
from torch.nn.functional import cross_entropy

{_RECORDS}
model = lambda: torch.nn.Linear(784, 10)  # yours
records = lambda context: (inputs, targets)  # yours
app = jopeq.flower.record_client(
    scheme, model=model, loss=cross_entropy, records=records
)

# server_app.py, with the same scheme and model
strategy = jopeq.flower.RecordStrategy(
    scheme, model=model(), unsigned=True,  # or trusted="trusted.txt"
    optimizer=lambda p: torch.optim.SGD(p, lr=32, momentum=0.9),
)
"""
_RECORD_PLAN = (
    "jopeq plan --records {patients} --clients {clients} --epsilon {epsilon} \\\n"
    "    --dimension {entries} --rounds {times}\n"
)
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
    "records": {
        "python": f"{_START}{_RECORDS}\n"
        "seed = os.urandom(32)  # of the round, known to all\n"
        "rows = np.zeros((1, {entries}))  # of the patients drawn by scheme.sample\n"
        "share = scheme.encode(rows, seed=seed)  # send it masked: jopeq.flower\n"
        "print(scheme.plan({entries}).bits, scheme.guarantee)\n",
        "cli": _RECORD_PLAN,
        "flower": _RECORD_FLOWER,
    },
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


def lines(
    setting: Setting, spread: float | None = None, sampling: float | None = None
) -> dict[str, str]:
    """The three texts. Per-entry schemes need the best ``spread``, records their ``sampling``."""
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
        "patients": str(s.patients),
        "half": str(max(3, -(-s.clients // 2))),
        "sampling": "" if sampling is None else f"{sampling:g}",
        "more": f", max_entries={s.entries}" if s.entries > MOST_ENTRIES else "",
    }
    return {
        kind: text.format(**values)
        for kind, text in LINES["entry" if s.scheme in PER_ENTRY else s.scheme].items()
    }
