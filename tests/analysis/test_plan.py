"""The table before training: complete, composed as guarantees compose, and as measured."""

import math

import numpy as np
import pytest

from jopeq import RecordSum, scheme
from jopeq.analysis.plan import plan
from jopeq.random import portable
from jopeq.random.streams import SharedStream
from jopeq.registry import SCHEMES

DIMENSION, ROUNDS = 7850, 95
DRAWS = 1 << 18


@pytest.fixture(scope="module")
def rows():
    found = plan(4.0, rate=2.0, dimension=DIMENSION, rounds=ROUNDS, clients=10)
    return [row for row in found if row.unit == "sample"]


def test_every_scheme_is_there(rows):
    names = [row.scheme.name for row in rows]
    assert set(names) == set(SCHEMES)
    assert names.count("jopeq") == 2  # on Z and on A2
    assert len({row.scheme for row in rows}) == len(rows)
    for row in rows:
        for name in ("bits_per_entry", "distortion", "error", "bias"):
            assert math.isfinite(getattr(row, name))
        client = row.scheme.guarantee.for_client(DIMENSION, ROUNDS, delta=1e-5)
        assert (row.per_client, row.delta) == (client.epsilon, client.delta)
        if getattr(row.scheme, "rate", None) is not None:
            assert row.bits_per_entry <= 2.0 + 1e-9
            assert row.payload_bytes * 8 <= 2.0 * DIMENSION + 8 * 200
        else:
            assert row.bits_per_entry == 32.0


def test_the_bytes_are_those_of_a_payload(rows, private):
    update = portable.normal(private("update"), 0, DIMENSION).astype(np.float32)
    for row in rows:
        length = len(row.scheme.encode(update))
        assert row.payload_bytes == length, row.scheme


UNBIASED = [
    scheme("sdq", rate=2.0),
    scheme("laplace", epsilon=4.0),
    scheme("t", epsilon=4.0),
    scheme("mvu", epsilon=4.0, rate=2.0),
    scheme("response", epsilon=1.0, rate=1.0),
    scheme("response", epsilon=4.0, rate=3.0),
]
BIASED = [
    scheme("jopeq", epsilon=4.0, rate=1.0),
    scheme("jopeq", epsilon=2.0, rate=math.log2(3)),
    scheme("laplace+sdq", epsilon=1.0, rate=1.0),
    scheme("t+sdq", epsilon=4.0, rate=2.0, lattice="A2"),
]


@pytest.mark.parametrize("built", [*UNBIASED, *BIASED], ids=lambda value: value.spec)
def test_the_bias_of_clamping_is_the_measured_one(built, private):
    """decoded − x, outwards, for x at the edge of the ball."""
    edge = np.zeros((DRAWS, built.dimension))
    edge[:, 0] = 1.0
    shared = SharedStream(private("edge, dither").read(lane=0, start=0, count=32).tobytes())
    letters = built.codec.to_letters(edge, 0, shared, private("edge, noise")).values
    errors = built.codec.to_samples(letters, 0, shared)[:, 0] - 1.0
    # on a lattice both are means over draws: the plan's over 65,536
    own = 1 / 65536 if built.dimension > 1 and built in BIASED else 0.0
    uncertainty = errors.std() * math.sqrt(1 / len(errors) + own)
    assert abs(errors.mean() - built.bias()) < 5 * uncertainty
    assert (built.bias() == 0.0) == (built in UNBIASED)
    assert built.bias() <= 0.0


WHOLE = ("dimension", "rounds", "clients")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        *(({name: 0}, f"{name} must be a whole number of at least 1") for name in WHOLE),
        *(({name: 2.5}, f"{name} must be .* 2.5") for name in WHOLE),
        *(({"epsilon": e}, f"epsilon must be .* got {e}") for e in (0.0, math.nan, math.inf)),
        *(({"rate": r}, f"rate must be .* got {r}") for r in (0.5, -2.0, math.nan, 100.0)),
        *(({"delta": d}, "delta must be") for d in (-0.1, 1.0, math.nan)),
    ],
)
def test_impossible_jobs_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        plan(**{"epsilon": 4.0, "rate": 2.0, "dimension": 2, **wrong})


def test_clients_without_a_sum_that_fits():
    """One client hides among nobody; Gaussian noise needs a δ; tables end somewhere."""
    job = {"epsilon": 8.0, "dimension": 7850}
    assert [row.scheme.name for row in plan(**job)] == ["sphere", "clients"]
    assert {row.unit for row in plan(**job)} == {"client"}
    many = {"dimension": 10**6, "rounds": 30}
    for changed in ({"clients": 1}, {"delta": 0.0}, {"clients": 200_000}, many):
        assert "clients" not in [row.scheme.name for row in plan(**{**job, **changed})]


def test_patients_get_a_row_for_each_number_of_rounds():
    job = {"dimension": 31, "records": 400, "delta": 1e-4}
    rows = plan(1.0, **job)
    assert [row.scheme.rounds for row in rows] == [10, 30, 60, 100]
    assert {row.unit for row in rows} == {"record"}
    assert {(row.scheme.clients, row.scheme.threshold) for row in rows} == {(10, 5)}
    (one,) = plan(1.0, **job, rounds=30, clients=7, colluding=3)
    assert (one.scheme.clients, one.scheme.threshold, one.scheme.colluding) == (7, 5, 3)
    for name, wrong in {"rate": 2.0, "clients": 2, "rounds": 0}.items():
        with pytest.raises(ValueError, match=name):
            plan(1.0, **job, **{name: wrong})


def test_a_proposal_takes_rounds_that_the_noise_allows_and_says_why():
    few = RecordSum.propose(epsilon=1.0, records=400, clients=10, dimension=31, delta=1e-4)
    many = RecordSum.propose(epsilon=1.0, records=60_000, clients=10, dimension=5210)
    assert (few.scheme.rounds, many.scheme.rounds) == (30, 100)
    assert few.plan == few.scheme.plan(31)
    assert few.plan.epsilon <= 1.0
    for name in ("rounds=30", "sampling=", f"bits={few.plan.bits}", "threshold=5"):
        assert name in few.why
    short = RecordSum.propose(epsilon=1.0, records=400, clients=10, dimension=31, rounds=(5, 10))
    assert short.scheme.rounds == 10
    with pytest.raises(ValueError, match="rounds must name"):
        RecordSum.propose(epsilon=1.0, records=400, clients=10, dimension=31, rounds=())
