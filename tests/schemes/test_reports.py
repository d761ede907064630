"""Reports of many clients at once are those that each would have sent alone."""

from __future__ import annotations

import numpy as np
import pytest

import jopeq
from jopeq.random.streams import PrivateStream

D = 60
SCHEME = jopeq.Sphere(epsilon=4.0, clip=1.0, bits=6, draws=1 << 10)
TERMS = SCHEME.round(dimension=D, key=b"k" * 32)
RNG = np.random.default_rng(0)
CLIENTS = np.array([5, 9, 2, (1 << 32) - 3, 70_000])
UPDATES = RNG.normal(size=(5, D)) * np.array([0.0, 1e-4, 0.05, 1.0, 1e30])[:, None]


class Shifted(PrivateStream):
    """The private words from ``shift`` on."""

    __slots__ = ("shift",)

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
    monkeypatch.setattr("jopeq.schemes.round._HOST_ENTRIES", 2 * TERMS.plan.padded)
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
    with pytest.raises(jopeq.UpdateError, match="nan"):
        TERMS.reports(rows, clients=CLIENTS, on_invalid="raise")


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
    assert TERMS.reports(np.empty((0, D)), clients=[]) == []
    assert TERMS.aggregator().add_many(np.array([]), clients=[]) == 0
    assert TERMS.aggregator().add_many([], clients=iter(())) == 0
