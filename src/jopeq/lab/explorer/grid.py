"""What the library says of a setting, and the tables in which the page looks it up.

A setting is a place on ``AXES``. Some numbers need the library (a plan, a best spread): ``tables``
holds these. The rest is arithmetic that the page repeats: errors of independent reports fall as
1/clients and 1/rounds, biases stay, pure ε add up, bytes multiply.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, Literal

import numpy as np

from jopeq.entries.spread import best_spread, normalised_error
from jopeq.privacy.guarantee import digits_up
from jopeq.registry import scheme
from jopeq.schemes.base import Scheme
from jopeq.secure import graph_for
from jopeq.secure.crypto import TAG_BYTES
from jopeq.secure.messages import KEY_BYTES, MAGIC, ROUND_BYTES
from jopeq.secure.shamir import SHARE_BYTES
from jopeq.sphere.sphere import LEAST_EPSILON, Sphere
from jopeq.sums.secure_sum import SecureSum
from jopeq.wire.coders import Packing
from jopeq.wire.payload import varint

AXES: dict[str, tuple[Any, ...]] = {
    "epsilon": (0.5, 1.0, 2.0, 4.0, 8.0, 16.0),
    "delta": (1e-5, 1e-6, 1e-8),
    "clients": (*(10**power * one for power in range(1, 6) for one in (1, 3)), 10**6),
    "rounds": (1, 10, 30, 100, 300),
    "entries": (1_000, 7_850, 100_000, 1_000_000, 10_000_000),
    "rate": (1.0, 2.0, 3.0, 4.0, 8.0),
}
PER_ENTRY = ("response", "jopeq")
SCHEMES = ("sphere", "sum", *PER_ENTRY)
MOST_SUMMED = 100_000  # clients of one secure sum
SHOWN_DIGITS = 5
TOLERANCE = 1e-4  # of the page's numbers, relative: the tables have five digits

Reason = Literal["thin", "many", "room", "tables", "plan"]
REASONS: dict[Reason, str] = {
    "thin": "ε = {epsilon} for {times} rounds leaves less than 1/64 for each, which sphere "
    "refuses. Raise ε, or let each client take part in fewer rounds.",
    "many": "A secure sum takes at most 100,000 clients. Take fewer a round, or trust nobody.",
    "room": "16 bits an entry cannot hold the sum of {clients} clients at this size. Take fewer "
    "clients a round, or a larger model.",
    "tables": "The noise tables of a secure sum are not fine enough for so many entries and "
    "rounds. Take fewer of them, or raise ε or δ.",
    "plan": "No plan of a secure sum holds this ε. Raise ε, or take fewer rounds.",
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One place on the axes. ``is_once``: each client takes part in one of the rounds, not all."""

    scheme: str = "sum"
    epsilon: float = 4.0
    delta: float = 1e-5
    clients: int = 100
    rounds: int = 10
    entries: int = 7850
    rate: float = 2.0
    is_once: bool = False

    @property
    def times(self) -> int:
        """Rounds in which one client takes part."""
        return 1 if self.is_once else self.rounds

    @property
    def threshold(self) -> int:
        """Clients that a secure sum must have: one in ten may drop out."""
        return math.ceil(0.9 * self.clients)


@dataclass(frozen=True)
class Answer:
    """What a setting gives. ε against the server; infinite where nothing is proven.

    ``error`` is that of the mean of one round, over the energy of an update, if all clients send
    the same update (of length ``clip`` where there is one). ``averaged`` is that of the mean over
    all rounds, in which biases stay. ``bias`` is at the edge of an entry's range.
    """

    bits_per_entry: float
    bytes_a_round: int  # up, by one client
    bytes_in_all: int  # up, by all clients in all rounds
    float32_in_all: int
    error: float
    averaged: float
    bias: float
    epsilon_entry: float
    epsilon_update: float
    epsilon_person: float
    delta: float


class Refusal(ValueError):  # noqa: N818 (an answer, not a failure)
    """The library refuses this setting; ``reason`` is a key of ``REASONS``."""

    def __init__(self, reason: Reason, setting: Setting) -> None:
        self.reason = reason
        given = {"epsilon": f"{setting.epsilon:g}", "clients": f"{setting.clients:,}"}
        super().__init__(REASONS[reason].format(times=setting.times, **given))


def answer(setting: Setting) -> Answer:
    """The library's answer; raises ``Refusal``.

    >>> found = answer(Setting(scheme="sphere", clients=10_000, rounds=1))
    >>> found.bytes_a_round, round(found.error, 2), found.epsilon_person
    (1, 0.35, 4.0)
    """
    s, bias, delta, lasting = setting, 0.0, 0.0, 0.0
    bits: float
    if s.scheme == "sphere":
        cell = sphere_cell(s.epsilon, s.times, s.entries)
        if isinstance(cell, str):
            raise Refusal(cell, s)
        one, bits = cell
        error, sent = one / s.clients, math.ceil(bits / 8)
        entry = update = s.epsilon / s.times
        person = s.epsilon
    elif s.scheme == "sum":
        summed = sum_cell(s.epsilon, s.delta, s.clients, s.times, s.entries)
        if isinstance(summed, str):
            raise Refusal(summed, s)
        error, bits = summed
        sent = math.ceil(bits / 8) + protocol_bytes(s.clients)
        entry = update = person = s.epsilon
        delta = s.delta
    else:
        built = entry_scheme(s.scheme, s.epsilon, s.rate)
        spread = best_spread(built, s.clients)
        error, bias = normalised_error(built, spread, s.clients), built.bias()
        lasting = normalised_error(built, spread, math.inf)
        sent = payload_bytes(built, s.entries)
        bits = built.bits_per_entry * s.entries
        promise = built.guarantee
        entry, update = promise.epsilon, promise.for_update(s.entries).epsilon
        person = promise.for_client(s.entries, s.times).epsilon
    return Answer(
        bits_per_entry=bits / s.entries,
        bytes_a_round=sent,
        bytes_in_all=sent * s.clients * s.rounds,
        float32_in_all=4 * s.entries * s.clients * s.rounds,
        error=error,
        averaged=lasting + (error - lasting) / s.rounds,
        bias=bias,
        epsilon_entry=entry,
        epsilon_update=update,
        epsilon_person=person,
        delta=delta,
    )


# What the tables hold


@lru_cache(maxsize=1024)
def sphere_cell(epsilon: float, times: int, entries: int) -> tuple[float, int] | Reason:
    """(Error of one report over C², its bits)."""
    if epsilon / times < LEAST_EPSILON:
        return "thin"
    built = Sphere(epsilon=epsilon / times, clip=1.0, max_entries=max(entries, 1 << 22))
    return built.expected_error(entries), built.bits_for(entries)


def sum_cell(
    epsilon: float, delta: float, clients: int, times: int, entries: int
) -> tuple[float, int] | Reason:
    """(Error of the mean over C², bits of a share)."""
    if clients > MOST_SUMMED:
        return "many"
    setting = Setting(epsilon=epsilon, delta=delta, clients=clients)
    built = SecureSum(
        epsilon=epsilon,
        delta=delta,
        clip=1.0,
        clients=clients,
        threshold=setting.threshold,
        participations=times,
    )
    try:
        return built.expected_error(entries), built.bits_for(entries)
    except ValueError as error:
        said = str(error)
        if "cannot hold the sum" in said:
            return "room"
        is_fine = "places a step" not in said and "rounding the tables" not in said
        return "plan" if is_fine else "tables"


def protocol_bytes(clients: int) -> int:
    """What a client of a secure sum sends besides its share: keys, sealed shares, openings."""
    neighbours, _ = graph_for(clients, Setting(clients=clients).threshold, 0)
    head = len(MAGIC) + 2 + ROUND_BYTES  # of each of four messages
    keys, commitment = 2 * KEY_BYTES, KEY_BYTES
    sealed = neighbours * (2 * SHARE_BYTES + TAG_BYTES)
    return 4 * head + keys + commitment + sealed + (neighbours + 1) * SHARE_BYTES


@lru_cache(maxsize=256)
def entry_scheme(name: str, epsilon: float, rate: float) -> Scheme:
    """The per-entry scheme with a public clip, whose value no figure depends on."""
    return scheme(name, epsilon=epsilon, rate=rate, clip=1.0)


def payload_bytes(built: Scheme, entries: int) -> int:
    """The length of a payload of one array, without coding so many entries."""
    if not isinstance(built.codec.coder, Packing) or built.dimension != 1:
        raise ValueError(f"{built.spec} does not have a fixed length")
    packing = Packing(built.codec.coder.letters)
    head = len(built.encode(np.zeros(1))) - packing.size(1) - len(varint(1))
    return head + packing.size(entries) + len(varint(entries))


# The tables


def tables(
    run: Callable[[Callable[..., Any], Iterable[Any]], Iterator[Any]] = map,
) -> dict[str, Any]:
    """All cells, flat, the last axis first to change. A refused cell holds its reason.

    ``run`` maps a function over cells, such as ``multiprocessing.Pool.imap`` does.
    """
    a = AXES
    sphere = list(run(_sphere, product(a["epsilon"], a["rounds"], a["entries"])))
    names = ("epsilon", "clients", "rounds", "entries", "delta")  # plans of one cohort have tables
    summed = list(run(_sum, product(*(a[name] for name in names))))
    entry = {
        name: list(run(_entry, product((name,), a["epsilon"], a["rate"]))) for name in PER_ENTRY
    }
    return {
        "axes": {name: list(values) for name, values in a.items()},
        "sphere": {"by": ["epsilon", "rounds", "entries"], **_columns(sphere)},
        "sum": {"by": list(names), **_columns(summed)},
        "protocol": [
            protocol_bytes(count) if count <= MOST_SUMMED else 0 for count in a["clients"]
        ],
        "entry": {
            name: {key: [cell[key] for cell in cells] for key in cells[0]}
            for name, cells in entry.items()
        },
    }


def rounded(value: float) -> float:
    """Five digits."""
    return float(f"{value:.{SHOWN_DIGITS}g}")


def _columns(cells: list[tuple[float, int] | Reason]) -> dict[str, list[Any]]:
    return {
        "error": [cell if isinstance(cell, str) else rounded(cell[0]) for cell in cells],
        "bits": [0 if isinstance(cell, str) else cell[1] for cell in cells],
    }


def _sphere(place: tuple[float, int, int]) -> tuple[float, int] | Reason:
    return sphere_cell(*place)


def _sum(place: tuple[float, int, int, int, float]) -> tuple[float, int] | Reason:
    epsilon, clients, times, entries, delta = place
    return sum_cell(epsilon, delta, clients, times, entries)


def _entry(place: tuple[str, float, float]) -> dict[str, Any]:
    """ε, rounded up (None: infinite), and bias; bytes by entries; spread and errors by clients.

    ``lasting`` is the part of ``error`` that biases make: no number of clients or rounds lowers it.
    """
    built = entry_scheme(*place)
    spreads = [best_spread(built, clients) for clients in AXES["clients"]]
    pairs = list(zip(spreads, AXES["clients"], strict=True))
    proven = built.guarantee.epsilon
    return {
        "epsilon": float(digits_up(proven, SHOWN_DIGITS)) if math.isfinite(proven) else None,
        "bias": rounded(built.bias()),
        "bits": rounded(built.bits_per_entry),
        "bytes": [payload_bytes(built, entries) for entries in AXES["entries"]],
        "spread": [round(spread, 2) for spread in spreads],
        "error": [rounded(normalised_error(built, *pair)) for pair in pairs],
        "lasting": [rounded(normalised_error(built, spread, math.inf)) for spread in spreads],
    }
