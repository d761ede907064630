"""The secure sum: a server learns the sum of its clients' integers, and nothing else of them.

``CircleServer`` and ``CircleClient`` exchange bytes and add vectors of integers mod 2^bits; no
framework and no mechanism lives here. Where members are few and known a sum takes one exchange
(``circle`` has an example). With ``dropouts="recover"`` it is SecAgg+ (Bell, Bonawitz, Gascón,
Lepoint, Raykova 2020; ``client``, ``server``), in which members may vanish. docs/threat-model.md
says what each attacker can do, docs/wire-format.md what each byte means.
"""

from jopeq.circle.circle import Attempt, CircleTerms, Plan, digest, fingerprint
from jopeq.circle.circle_client import CircleClient, Due, joins, read_audit
from jopeq.circle.circle_server import CircleServer
from jopeq.circle.graph import graph_for

__all__ = [
    "Attempt",
    "CircleClient",
    "CircleServer",
    "CircleTerms",
    "Due",
    "Plan",
    "digest",
    "fingerprint",
    "graph_for",
    "joins",
    "read_audit",
]
