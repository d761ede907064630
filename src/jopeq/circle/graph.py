"""The graph of clients: who masks with whom, and who holds whose shares.

Up to 100 clients: everybody. Beyond: clients stand on a circle in an order that the transcript
fixes, and each is joined to the k/2 next ones on either side (Bell et al. 2020, section 3). Its
secrets are shared among these neighbours and itself.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

COMPLETE_UP_TO = 100
FAILURE = 2.0**-40  # of a round, by bad luck
EXPOSURE = 2.0**-80  # of a client: a server can try many rosters and send the one that suits it


@lru_cache(maxsize=64)
def graph_for(clients: int, threshold: int, colluding: int) -> tuple[int, int]:
    """(k, t): neighbours of a client, and shares that open a secret.

    The smallest even k for which both bounds hold; else everybody is a neighbour, k = n − 1 and
    t = ``threshold``. With n clients, of which at least T = ``threshold`` answer to the end and at
    most c = ``colluding`` tell the server all they know:

    - *Security.* t ≥ k/2 + 2 + m, where more than m of some client's k neighbours collude with
      probability at most n·P(H(n − 1, c, k) > m) ≤ 2⁻⁸⁰. Here H(N, g, k) is the hypergeometric
      number of good ones among k drawn from N with g good, and the last bound sets m.
    - *Correctness.* Fewer than t neighbours of some client answer to the end with probability at
      most n·P(H(n − 1, T, k) < t) ≤ 2⁻⁴⁰, if who drops out does not depend on the graph.

    docs/threat-model.md says why security needs no luck about dropouts.

    >>> graph_for(50, 34, 0)
    (49, 34)
    """
    if clients > COMPLETE_UP_TO:
        most, exposed = (math.log(chance / clients) for chance in (FAILURE, EXPOSURE))
        for k in range(4, clients - 1, 2):
            tail = _log_upper_tails(clients - 1, colluding, k)
            m = int(np.argmax(tail <= exposed))  # the fewest that are almost never exceeded
            t = k // 2 + 2 + m
            # fewer than t of the k answer: more than k − t are among the n − 1 − T who do not
            lost = _log_upper_tails(clients - 1, clients - 1 - threshold, k)
            if t <= k and lost[k - t] <= most:
                return k, t
    return clients - 1, threshold


def _log_upper_tails(everyone: int, marked: int, drawn: int) -> np.ndarray:
    """ln P(H > m) for m = 0 … drawn, H the number of marked ones among ``drawn``."""
    from scipy.stats import hypergeom

    logs = hypergeom.logpmf(np.arange(drawn + 1), everyone, marked, drawn)
    return np.append(np.logaddexp.accumulate(logs[:0:-1])[::-1], -np.inf)


@dataclass(frozen=True)
class Graph:
    """The graph of one round, over positions 0 … clients − 1 in the roster."""

    clients: int
    threshold: int
    colluding: int
    transcript: bytes

    @property
    def opening(self) -> int:
        return graph_for(self.clients, self.threshold, self.colluding)[1]

    @cached_property
    def circle(self) -> tuple[list[int], list[int]]:
        """The order on the circle, and the place of each position in it."""

        def draw(position: int) -> bytes:
            return hashlib.sha256(self.transcript + position.to_bytes(4, "little")).digest()

        order = sorted(range(self.clients), key=draw)
        places = [0] * self.clients
        for place, position in enumerate(order):
            places[position] = place
        return order, places

    def holders(self, position: int) -> list[int]:
        """The client's neighbours and itself, sorted: they hold its shares, and it holds theirs."""
        k, _ = graph_for(self.clients, self.threshold, self.colluding)
        if k == self.clients - 1:
            return list(range(self.clients))
        order, places = self.circle
        at = places[position]
        return sorted(order[(at + step) % self.clients] for step in range(-(k // 2), k // 2 + 1))
