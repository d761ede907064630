"""Sums of a round's reports: any order, any parts, and nothing hostile changes them."""

from __future__ import annotations

import pickle
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jopeq
from jopeq import kernels
from jopeq.errors import PayloadError
from jopeq.random.streams import PrivateStream
from jopeq.sphere import sphere_codebook as codebook
from jopeq.sphere.sphere import Round

SCHEME = jopeq.Sphere(epsilon=4.0, clip=1.0, bits=6, draws=1 << 10)
TERMS = SCHEME.round(dimension=60, seed=b"k" * 32)


def filled(clients=range(40)):
    total = TERMS.aggregator()
    assert total.add_many(np.array(clients) % 30, clients=np.array(clients)) == len(clients)
    return total


def kept(total):
    """All that a sum holds."""
    mean = total.mean().tobytes() if total.count else b""
    return mean, total.count, +total.refused


def test_terms_travel_and_a_server_chooses_none_of_them():
    assert Round.from_terms(TERMS.terms, scheme=SCHEME) == TERMS
    with pytest.raises(PayloadError, match="name scheme"):
        Round.from_terms(TERMS.terms, scheme=jopeq.Sphere(epsilon=2.0, clip=1.0))
    with pytest.raises(PayloadError, match="another version"):
        Round.from_terms(TERMS.terms.replace(b"60", b"61"), scheme=SCHEME)
    hostile = [TERMS.terms.replace(b"60", text) for text in (b"Infinity", b"NaN", b"-1", b"1e300")]
    for terms in (*hostile, b"", b"[]", b"{}", b"\xff", b"[" * 10**5, TERMS.terms[:-9]):
        with pytest.raises(PayloadError, match="not the terms of a round"):
            Round.from_terms(terms, scheme=SCHEME)


FEW = SCHEME.round(dimension=60, seed=b"k" * 32, people=70_001)  # short lists of who reported
REPORTS = st.lists(
    st.tuples(st.integers(-2, FEW.plan.codewords + 1), st.integers(-2, 70_000)), max_size=40
)


@given(REPORTS, st.randoms(use_true_random=False))
def test_every_way_of_adding_gives_the_same_sum(pairs, random):
    """Bytes or numbers, any order of different clients, in one piece, parts, or kept between."""
    indices = np.array([index for index, _ in pairs], dtype=np.int64)
    clients = np.array([client for _, client in pairs], dtype=np.int64)
    at_once = FEW.aggregator()
    at_once.add_many(indices, clients=clients)
    one_by_one = FEW.aggregator()
    for index, client in pairs:
        body = index.to_bytes(1, "little") if 0 <= index < 256 else b"??"
        one_by_one.add(body, client=client)
    assert kept(one_by_one) == kept(at_once)
    first = {client: index for index, client in reversed(pairs) if FEW.plan.codewords > index >= 0}
    good = [(client, index) for client, index in first.items() if client >= 0]
    assert at_once.count == len(good)
    random.shuffle(good)
    cut = len(good) // 2
    parts = [FEW.aggregator(), FEW.aggregator()]
    for number, own in enumerate((good[:cut], good[cut:])):
        parts[number].add_many([bytes([index]) for _, index in own], clients=[c for c, _ in own])
    merged = parts[0] + pickle.loads(pickle.dumps(parts[1]))
    merged.refused = at_once.refused
    assert kept(merged) == kept(at_once)


def test_the_mean_is_that_of_the_decoded_codewords():
    total = filled(range(30))
    plan, shared = TERMS.plan, TERMS.shared
    decoded = []
    for client in range(30):
        one = np.zeros(plan.padded, dtype=np.int64)
        codebook.add_codewords(np.array([client]), np.array([client]), plan, shared, one)
        decoded.append(codebook.decode_sum(one, plan, shared))
    np.testing.assert_allclose(total.mean(), np.mean(decoded, axis=0), atol=1e-12)


def test_hostile_numbers_and_reports_are_counted_and_refused():
    total = filled()
    before = total.mean().tobytes()
    for client in (-1, 1 << 70, (1 << 32) - 2, True, 3.0, "3", None, np.float64(3)):
        assert not total.add(b"\x01", client=client)
    for report in (b"", b"\x01\x02", b"\xff", "a", 3, None, np.array([1]), [1], bytearray(9)):
        assert not total.add(report, client=100)
    assert not total.add(b"\x01", client=np.int64(7))  # counted before
    assert total.refused == {"number": 8, "malformed": 9, "duplicate": 1}
    hostile = np.array([0, 1, 2, 3, 3, TERMS.plan.codewords])
    assert total.add_many(hostile, clients=[-1, 1 << 70, True, 7, 3.0, 99]) == 0
    assert total.add_many(np.array([1, 2], np.uint64), clients=np.array([1 << 63, 8], "u8")) == 0
    assert total.refused == {"number": 13, "malformed": 10, "duplicate": 3}
    assert total.mean().tobytes() == before
    assert total.add(bytearray(b"\x01"), client=100)
    assert total.add(memoryview(b"\x01"), client=np.uint32(101))


@pytest.mark.parametrize("indices", [[1.0], [True], ["1"], [[1]], [1, 2]])
def test_arrays_that_are_not_numbers_are_errors(indices):
    total, indices = filled(), np.array(indices)
    before = kept(total)
    for one, two in ((indices, np.array([1])), (np.array([1]), indices)):
        with pytest.raises(ValueError, match=r"whole numbers|give one each"):
            total.add_many(one, clients=two)
    assert kept(total) == before


def test_an_error_leaves_the_sum_as_it_was(monkeypatch):
    total = filled()
    before = kept(total)

    def fail(*arguments):
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr("jopeq.sphere.sphere_codebook.add_codewords", fail)
        with pytest.raises(MemoryError):
            total.add_many(np.array([21]), clients=np.array([51]))
        with pytest.raises(MemoryError):
            total.add(bytes([21]), client=51)
    assert kept(total) == before
    assert total.add(bytes([21]), client=51)
    assert kept(total) == kept(filled([*range(40), 51]))


def test_a_sum_does_not_change_what_it_was_made_of():
    one, two = filled(range(40)), filled(range(70_000, 70_040))
    before = kept(one), kept(two)
    merged = one + two
    assert merged.count == 80
    assert merged.add(b"\x01", client=50)
    assert (kept(one), kept(two)) == before
    assert one.add(b"\x01", client=50)
    for other in (one, merged):
        with pytest.raises(ValueError, match="in both"):
            one + other
    with pytest.raises(ValueError, match="different rounds"):
        one + SCHEME.round(dimension=60, seed=b"x" * 32).aggregator()


def test_a_sum_that_lost_its_secrets_takes_no_more_reports():
    """Otherwise it would take reports without a tag from anybody."""

    def secret(client):
        return {7: bytes(32)}[client]

    total = TERMS.aggregator(secrets=secret)
    report = TERMS.report(np.zeros(60), client=7, secret=bytes(32))
    assert not total.add(report, client=8)
    assert total.refused == {"unknown": 1}
    assert total.add(report, client=7)
    other = pickle.loads(pickle.dumps(total))
    assert other.mean().tobytes() == total.mean().tobytes()
    with pytest.raises(ValueError, match="secrets"):
        other.add(b"\x01", client=9)
    with pytest.raises(ValueError, match="secrets"):
        other.add_many(np.array([1]), clients=np.array([9]))
    with pytest.raises(ValueError, match="signed"):
        other + TERMS.aggregator()
    again = TERMS.aggregator(secrets=secret) + other
    assert not again.add(report, client=7)
    assert again.refused == Counter(unknown=1, duplicate=1)


def test_secrets_that_know_nobody_or_fail_do_not_stop_a_batch_half_way():
    """An unknown client is refused, whatever lookup is used; a failure adds nothing at all."""
    known = {client: client.to_bytes(32, "little") for client in (1, 2, 3)}
    reports = TERMS.reports(np.zeros((3, 60)), clients=[1, 2, 3], secrets=known.__getitem__)
    strangers = [reports[0], reports[1], reports[2]]
    for lookup in (known.get, known.__getitem__):
        total = TERMS.aggregator(secrets=lookup)
        assert not total.add(reports[0], client=7)
        assert total.add_many(strangers, clients=[1, 9, 3]) == 2
        assert total.refused == {"unknown": 2}

    def failing(client):
        if client == 3:
            raise OSError("the store of secrets does not answer")
        return known[client]

    total = TERMS.aggregator(secrets=failing)
    with pytest.raises(OSError, match="store"):
        total.add_many(reports, clients=[1, 2, 3])
    assert (total.count, total.refused) == (0, {})
    with pytest.raises(ValueError, match="secret"):
        TERMS.reports(np.zeros((1, 60)), clients=[9], secrets=known.get)  # never unsigned


def test_people_bound_the_numbers_and_the_memory():
    """One bit for each, however far apart the numbers of hostile reports lie."""
    few = SCHEME.round(dimension=60, seed=b"k" * 32, people=12)
    assert few.digest != TERMS.digest
    assert Round.from_terms(few.terms, scheme=SCHEME) == few
    total = few.aggregator()
    assert total.add_many(np.arange(14), clients=np.arange(14)) == 12
    assert not total.add(b"\x01", client=12)
    assert total.refused == {"number": 3}
    with pytest.raises(ValueError, match="client"):
        few.report(np.zeros(60), client=12)
    for people in (0, -1, 1 << 40, 3.0, True):
        with pytest.raises(ValueError, match="people"):
            SCHEME.round(dimension=60, seed=b"k" * 32, people=people)
    tracemalloc.start()
    try:
        spread = TERMS.aggregator()
        for number in range(1000):
            spread.add(b"\x01", client=number * 4_000_003 % (1 << 32))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < TERMS.people / 8 + 500_000


def test_memory_does_not_grow_with_reports():
    terms = SCHEME.round(dimension=1 << 14, seed=b"k" * 32, people=3000)
    kernels.use("off")
    tracemalloc.start()
    try:
        total = terms.aggregator()
        for first in range(0, 3000, 100):
            total.add_many(np.zeros(100, np.int64), clients=np.arange(first, first + 100))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        kernels.use(None)
    assert total.count == 3000
    assert peak < 3 * 8 * terms.plan.padded + (1 << 19)


def test_a_ledger_charges_each_report_of_a_round():
    ledger = jopeq.Ledger(budget=9.0)
    for count in (1, 2):
        ledger.charge(TERMS.scheme, TERMS.dimension)
        assert ledger.spent.epsilon == pytest.approx(count * SCHEME.guarantee.epsilon)
    with pytest.raises(jopeq.BudgetExceededError):
        ledger.charge(TERMS.scheme, TERMS.dimension)
    with pytest.raises(ValueError, match="secret"):
        TERMS.report(np.zeros(60), client=1, secret=b"short")
    with pytest.raises(ValueError, match="61 entries"):
        TERMS.report(np.zeros(61), client=1)


# Reports of many clients at once are those that each would have sent alone

CLIENTS = np.array([5, 9, 2, (1 << 24) - 1, 70_000])
UPDATES = (
    np.random.default_rng(0).normal(size=(5, 60)) * np.array([0.0, 1e-4, 0.05, 1.0, 1e30])[:, None]
)


class Shifted(PrivateStream):
    """The private words from ``shift`` on."""

    def words64(self, *, lane, start, count):
        return super().words64(lane=lane, start=start + self.shift, count=count)


def noise(shift=0):
    stream = Shifted.reproducible(b"n" * 32)
    stream.shift = shift
    return stream


def reports():
    return TERMS.reports(UPDATES, clients=CLIENTS, noise=noise())


def test_a_batch_is_what_single_reports_are(monkeypatch):
    single = [
        TERMS.report(update, client=client, noise=noise(2 * place))
        for place, (update, client) in enumerate(zip(UPDATES, CLIENTS, strict=True))
    ]
    assert reports() == single
    monkeypatch.setattr("jopeq.sphere.sphere._ENTRIES", 2 * TERMS.plan.padded)
    assert reports() == single  # in pieces of two
    states = [{"a": row[:7].reshape(7, 1), "b": row[7:]} for row in UPDATES]
    assert TERMS.reports(states, clients=CLIENTS.tolist(), noise=noise()) == single
    indices = TERMS.indices(UPDATES, clients=CLIENTS, noise=noise())
    assert [int.from_bytes(report, "little") for report in single] == indices.tolist()


def test_invalid_entries_are_replaced_alike():
    rows = UPDATES.copy()
    rows[1, 3], rows[2, 4] = np.nan, np.inf
    batch = TERMS.reports(rows, clients=CLIENTS, noise=noise())
    assert batch[1] == TERMS.report(rows[1], client=9, noise=noise(2))
    assert batch[2] == TERMS.report(rows[2], client=2, noise=noise(4))


def test_signed_reports_of_a_batch():
    def secret(client):
        return client.to_bytes(32, "little")

    signed = TERMS.reports(UPDATES, clients=CLIENTS, secrets=secret)
    total = TERMS.aggregator(secrets=secret)
    assert total.add_many(signed, clients=CLIENTS) == 5
    assert total.add_many(signed, clients=CLIENTS[::-1].copy()) == 0
    assert total.refused == {"forged": 4, "duplicate": 1}


def test_noise_serves_one_batch():
    stream = PrivateStream()
    TERMS.reports(UPDATES, clients=CLIENTS, noise=stream)
    with pytest.raises(ValueError, match="same noise"):
        TERMS.reports(UPDATES, clients=CLIENTS, noise=stream)


@pytest.mark.parametrize(
    ("updates", "clients"),
    [
        (UPDATES, CLIENTS[:4]),
        *((UPDATES, [1, 2, 3, 4, last]) for last in (4, -1, True, (1 << 32) - 2)),
        (UPDATES[:, 1:], CLIENTS),
        ({"a": UPDATES[0]}, [1]),
        ([UPDATES[0], UPDATES[1][1:]], [1, 2]),
    ],
)
def test_batches_that_make_no_sense(updates, clients):
    with pytest.raises(ValueError, match=r"client|entries|updates"):
        TERMS.reports(updates, clients=clients)


def test_no_clients_no_reports():
    assert TERMS.reports(np.empty((0, 60)), clients=[]) == []
    assert TERMS.aggregator().add_many(np.array([]), clients=[]) == 0
    assert TERMS.aggregator().add_many([], clients=iter(())) == 0
