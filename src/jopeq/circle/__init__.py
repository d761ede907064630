"""The secure sum: a server learns the sum of its clients' integers, and nothing else of them.

SecAgg+ (Bell, Bonawitz, Gascón, Lepoint, Raykova 2020) as two state machines that exchange bytes.
No framework and no mechanism lives here: the room adds vectors of unsigned integers mod 2^bits.
Circles (``jopeq.circle.circle``) take one exchange instead of four where members are few and known.
docs/threat-model.md says what each attacker can do, docs/wire-format.md what each byte means.

>>> import numpy as np
>>> terms = Terms(spec="example", bits=8, length=3, clients=3, threshold=2)
>>> server, clients = Server(terms), {me: Client(terms, me) for me in (10, 20, 30)}
>>> keys = {me: client.keys(server.offer) for me, client in clients.items()}
>>> roster = server.roster(keys.items())
>>> shares = {me: clients[me].shares(roster[me]) for me in roster}
>>> masked = {}
>>> for me, inbox in server.inboxes(shares.items()).items():
...     clients[me].receive(inbox)
...     masked[me] = clients[me].mask(np.array([1, 2, me]))
>>> del masked[30]  # this client disappears
>>> survivors = server.survivors(masked.items())
>>> opened = {me: clients[me].open(survivors[me]) for me in survivors}
>>> server.total(opened.items()).tolist(), server.alive
([2, 4, 30], (10, 20))
"""

from jopeq.circle.circle import Attempt, CircleTerms, Plan, digest, fingerprint
from jopeq.circle.circle_client import CircleClient, Due, read_audit
from jopeq.circle.circle_recover import joins
from jopeq.circle.circle_server import CircleServer
from jopeq.circle.client import Client
from jopeq.circle.graph import Graph, graph_for
from jopeq.circle.messages import Terms
from jopeq.circle.server import Server

__all__ = [
    "Attempt",
    "CircleClient",
    "CircleServer",
    "CircleTerms",
    "Client",
    "Due",
    "Graph",
    "Plan",
    "Server",
    "Terms",
    "digest",
    "fingerprint",
    "graph_for",
    "joins",
    "read_audit",
]
