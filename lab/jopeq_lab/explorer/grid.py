"""The library's numbers for a setting, and the tables in which the page looks them up.

A setting is a place on ``AXES``. Some numbers need the library (a plan, a best spread): the tables,
which ``tools/make_explorer.py`` makes, hold these. The rest is arithmetic that the page repeats:
errors of independent reports fall as 1/clients and 1/rounds, biases stay, pure ε add up, bytes
multiply.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, cast

import numpy as np
from dp_accounting import get_sigma_gaussian

from jopeq.analysis.learning import judge, mean_error
from jopeq.circle import graph_for
from jopeq.circle.crypto import CONFIRMATION_BYTES, TAG_BYTES
from jopeq.circle.messages import KEY_BYTES, MAGIC, ROUND_BYTES
from jopeq.circle.shamir import SHARE_BYTES
from jopeq.errors import PlanError
from jopeq.registry import scheme
from jopeq.schemes.base import Scheme
from jopeq.sphere.sphere import LEAST_EPSILON, Sphere
from jopeq.sums.record_accounting import least_multiplier
from jopeq.sums.record_plan import SAMPLINGS, SIGNAL, Proposal
from jopeq.sums.record_sum import ClientSum, RecordSum
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
SCHEMES = ("records", "sphere", "clients", *PER_ENTRY)
MOST_SUMMED = 100_000  # clients of one secure sum
RECORD_DELTA = 1e-5
RECORD_EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # of the table of multipliers
RECORD_ROUNDS = (1, 3, 10, 30, 100, 300)
PRICE = 1.026  # squared error of a sum's plan compared with that of central noise
BITS = 10  # of a number in a share: plans take 6 to 16
MOST_SIZE = 6e11  # clients·entries·rounds·(1 + e^ε): beyond it noise tables may be too coarse
DEARER, WIDE = 1.25, 1.5  # as in jopeq.sums.record_plan and jopeq.models.model; tests compare
TOLERANCE = 1e-4  # of the page's numbers, relative: the tables have five digits

Reason = Literal["thin", "many", "range", "messages", "large", "room", "tables", "plan"]
REASONS: dict[Reason, str] = {
    "thin": "ε = {epsilon} for {times} rounds leaves less than 1/64 for each, which sphere "
    "refuses. Raise ε, or let each client take part in fewer rounds.",
    "many": "A secure sum takes at most 100,000 clients. Take fewer a round, or trust nobody.",
    "range": "This page takes numbers in these ranges. {what}.",
    "messages": "A regression with intervals takes at least 4 messages: three find the model, the "
    "others make it exact.",
    "large": "This is too large for this page: the library may refuse it. Ask jopeq plan "
    "--records. Fewer parameters or rounds help, and a smaller ε, whose noise is larger.",
    "room": "32 bits an entry cannot hold the sum of {clients} clients at this size. Take fewer "
    "clients a round, or a larger model.",
    "tables": "The noise tables of a secure sum are not fine enough for so many entries and "
    "rounds. Take fewer of them, lower ε, or raise δ.",
    "plan": "No plan of a secure sum holds this ε. Raise ε, or take fewer rounds.",
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One place on the axes. ``is_once``: each client takes part in one of the rounds, not all."""

    scheme: str = "clients"
    epsilon: float = 4.0
    delta: float = 1e-5
    clients: int = 100
    rounds: int = 10
    entries: int = 7850
    rate: float = 2.0
    patients: int = 4_000  # of all hospitals together
    columns: int = 10  # of a regression on tables
    is_once: bool = False

    @property
    def times(self) -> int:
        """Rounds in which one client takes part; a patient may be drawn in all of them."""
        return 1 if self.is_once and self.scheme != "records" else self.rounds

    @property
    def threshold(self) -> int:
        """Clients that a secure sum must have: nine in ten, and half of the hospitals."""
        if self.scheme == "records":
            return max(3, math.ceil(self.clients / 2))
        return math.ceil(0.9 * self.clients)


@dataclass(frozen=True)
class Answer:
    """The result of a setting. ε holds against the server; infinite where nothing is proven.

    ``error`` is E‖error‖² of the mean of one round, over the energy of an update, if all clients
    send the same update (of length ``clip`` where there is one; for ``records`` over that of a mean
    gradient ``SIGNAL`` times as long, as ``jopeq plan --records`` counts). ``averaged`` is that of
    the mean over all rounds, in which biases stay. ``bias`` is at the edge of an entry's range.
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
    if s.scheme == "records":
        planned = record_cell(s.clients, s.epsilon, s.rounds, s.entries, s.patients)
        noise, bits = planned.plan.error, planned.plan.payload_bits
        error = noise / SIGNAL**2
        sent = math.ceil(bits / 8) + protocol_bytes(s.clients, s.threshold)
        entry = update = person = s.epsilon
        delta = RECORD_DELTA
    elif s.scheme == "sphere":
        cell = sphere_cell(s.epsilon, s.times, s.entries)
        if isinstance(cell, str):
            raise Refusal(cell, s)
        one, bits = cell
        error, sent = one / s.clients, math.ceil(bits / 8)
        entry = update = s.epsilon / s.times
        person = s.epsilon
    elif s.scheme == "clients":
        summed = sum_cell(s.epsilon, s.delta, s.clients, s.times, s.entries)
        if isinstance(summed, str):
            raise Refusal(summed, s)
        error, bits = summed
        sent = math.ceil(bits / 8) + protocol_bytes(s.clients, s.threshold)
        entry = update = person = s.epsilon
        delta = s.delta
    else:
        built = entry_scheme(s.scheme, s.epsilon, s.rate)
        (error, lasting), bias = mean_error(built, s.entries, s.clients), built.bias()
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
        averaged=judge(error, s.rounds, lasting=lasting).averaged,
        bias=bias,
        epsilon_entry=entry,
        epsilon_update=update,
        epsilon_person=person,
        delta=delta,
    )


# The cells of the tables


@lru_cache(maxsize=1024)
def record_cell(clients: int, epsilon: float, rounds: int, entries: int, patients: int) -> Proposal:
    """The proposal of ``jopeq plan --records``, with which the page's arithmetic is compared."""
    given: dict[str, Any] = {"records": patients, "clients": clients, "dimension": entries}
    return RecordSum.propose(epsilon=epsilon, **given, delta=RECORD_DELTA, rounds=(rounds,))


def multiplier_table() -> dict[str, Any]:
    """The noise that ε takes: of Gaussian sums, and what sampling and few rounds change about it.

    ``mu`` is that of one sum of everybody. ``ratios`` compare the accountant's multiplier with the
    central limit's, which is why a few places are enough: it is smooth in ε and rounds.
    """
    fine = tuple(float(f"{0.25 * 2 ** (place / 4):.4g}") for place in range(21))
    return {
        "epsilons": fine,
        "mu": [1.0 / get_sigma_gaussian(*_left(one)) for one in fine],
        "some_epsilons": RECORD_EPSILONS,
        "rounds": RECORD_ROUNDS,
        "samplings": SAMPLINGS,
        "ratios": [
            [[multiplier_ratio(one, q, rounds) for rounds in RECORD_ROUNDS]
             for one in RECORD_EPSILONS]
            for q in SAMPLINGS
        ],
    }  # fmt: skip


def _left(epsilon: float) -> tuple[float, float]:
    """The ε and δ that ``RecordPlan`` leaves for noise."""
    kept = 2.0**-11
    delta = RECORD_DELTA * (1.0 - 2.0 * 2.0**-10 - 2.0**-6) * math.exp(-kept * epsilon)
    return epsilon * (1.0 - 2.0**-9 - 2.0 * kept), delta


def multiplier_ratio(epsilon: float, sampling: float, rounds: int) -> float:
    """The accountant's multiplier over that of the central limit."""
    left = _left(epsilon)
    mu = 1.0 / float(get_sigma_gaussian(*left))
    many = math.sqrt(rounds) / mu
    if sampling < 1.0:
        many = 1.0 / math.sqrt(math.log1p((mu / sampling) ** 2 / rounds))
    return round(least_multiplier(*left, sampling, rounds, 1) / many, 5)


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
    built = ClientSum(
        epsilon=epsilon,
        delta=delta,
        clip=1.0,
        clients=clients,
        threshold=setting.threshold,
        rounds=times,
    )
    try:
        return built.expected_error(entries), built.plan(entries).payload_bits
    except PlanError as error:
        return cast(Reason, error.code)


def protocol_bytes(clients: int, threshold: int) -> int:
    """Bytes that a client sends in addition to its share: keys, sealed shares, openings.

    Without signatures each neighbour also gets a confirmation.
    """
    neighbours, _ = graph_for(clients, threshold, 1)
    head = len(MAGIC) + 2 + ROUND_BYTES  # of each of four messages
    keys, commitment = 2 * KEY_BYTES, KEY_BYTES
    sealed = neighbours * (2 * SHARE_BYTES + TAG_BYTES)
    confirmed, which = neighbours * CONFIRMATION_BYTES, (neighbours + 8) // 8
    opened = which + (neighbours + 1) * SHARE_BYTES
    return 4 * head + keys + commitment + sealed + confirmed + opened


@lru_cache(maxsize=256)
def entry_scheme(name: str, epsilon: float, rate: float) -> Scheme:
    """The per-entry scheme with a public clip, whose value no figure depends on."""
    return scheme(name, epsilon=epsilon, rate=rate, clip=1.0)


def payload_bytes(built: Scheme, entries: int) -> int:
    """The length of a payload of one array, found without coding its entries."""
    if not isinstance(built.codec.coder, Packing) or built.dimension != 1:
        raise ValueError(f"{built.spec} does not have a fixed length")
    packing = Packing(built.codec.coder.letters)
    head = len(built.encode(np.zeros(1))) - packing.size(1) - len(varint(1))
    return head + packing.size(entries) + len(varint(entries))
