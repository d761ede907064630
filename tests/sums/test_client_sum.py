"""``clients``: privacy of a client's whole update, errors, any floats, and refusals."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import jopeq
from jopeq.errors import PlanError
from jopeq.random.streams import PrivateStream
from tests.golden import make_shares

SEED = bytes(range(32))
RESULTS = Path(__file__).parents[2] / "results"
COMMON = {"epsilon": 4.0, "delta": 1e-5, "clip": 1.0, "colluding": 0}


def summed(scheme, updates, seed=SEED, label=b"n"):
    """The sum of the shares, by noise that a test can repeat."""
    total = 0
    for number, update in enumerate(updates):
        key = label.ljust(24, b".") + number.to_bytes(8, "little")
        noise = PrivateStream.reproducible(key)
        total = total + scheme.encode(update, seed=seed, noise=noise).astype(np.int64)
    return total


@pytest.mark.parametrize("honest", [2, 8, 20])
def test_the_exact_delta_of_a_plan_is_within_the_one_asked_for(honest):
    """The client's whole norm in one entry of 40, or evenly in all: the real tables, all rounds."""
    rounds, unit, size = 3, 8e-5, 1 << 19
    scheme = jopeq.ClientSum(**COMMON, clients=honest, threshold=honest, rounds=rounds)
    plan, value = scheme.plan(40), np.fft.fftfreq(1 << 19, 1 / ((1 << 19) * 8e-5))
    for entries in (1, 40):
        place = math.floor(plan.bound / math.sqrt(entries))
        first, rest = 0, np.ones(1)
        start, row = plan.law.chances(0)
        for _ in range(honest - 1):
            first, rest = first + start, np.convolve(rest, row)
        sides = [plan.law.chances(place), plan.law.chances(0)]
        (low, p), (other, q) = ((first + at, np.convolve(rest, here)) for at, here in sides)
        shifted, overlap = np.zeros(len(p)), max(0, len(p) - (low - other))
        shifted[:overlap] = q[low - other :][:overlap]
        p, shifted = p[p > 0], shifted[p > 0]
        with np.errstate(divide="ignore"):
            losses = np.ceil(np.log(p / shifted) / unit)
        near = np.abs(losses) < size // 8
        once = np.bincount(losses[near].astype(int) % size, p[near], size)
        chances = np.fft.irfft(np.fft.rfft(once) ** (rounds * entries), size)
        exact = float(chances @ -np.expm1(np.minimum(scheme.epsilon - value, 0.0)))
        exact += rounds * entries * float(p[~near].sum())
        assert 0.3 * scheme.delta <= exact <= scheme.delta


@pytest.mark.parametrize(
    "given",
    [
        {"clients": 100, "threshold": 67, "bits": 13},
        {"clients": 20, "threshold": 15, "colluding": 5, "rounds": 30},
        {"clients": 2, "threshold": 2, "dropouts": "repeat"},
        {"clients": 1000, "threshold": 900, "epsilon": 8.0},
    ],
    ids=str,
)
def test_what_a_plan_states_is_what_was_asked_for(given):
    scheme = jopeq.ClientSum(**{**COMMON, **given})
    for dimension in (1000, 60_000):
        plan = scheme.plan(dimension)
        assert 0.98 * scheme.epsilon <= plan.epsilon <= scheme.epsilon * (1 + 1e-9)
        assert plan.price <= 1.06
        # at the threshold nobody is missing: as good as a central Gaussian of that many clients
        if scheme.colluding == 0:
            error = scheme.expected_error(dimension, clients=scheme.threshold)
            fewer = (scheme.clients / scheme.threshold) ** 2
            assert error <= 1.06 * fewer * scheme.plan(dimension, scheme.threshold).central_error


@pytest.mark.parametrize("dropouts", ["recover", "repeat"])
def test_unbiased_with_the_error_that_is_stated(dropouts):
    """The mean of those who answered along a fixed direction, and its squared error."""
    rng, dimension, rounds = np.random.default_rng(5), 1500, 12
    scheme = jopeq.ClientSum(**COMMON, clients=20, threshold=14, dropouts=dropouts)
    for count in (14, 20):
        updates = rng.normal(size=(count, dimension)) + rng.normal(size=dimension)
        updates *= 0.9 / np.linalg.norm(updates, axis=1, keepdims=True)
        mean, found, errors = updates.mean(axis=0), [], []
        for number in range(rounds):
            seed, total = number.to_bytes(32, "little"), 0
            for who, update in enumerate(updates):
                noise = PrivateStream.reproducible(bytes([number, who, count]) + bytes(29))
                share = scheme.encode(update, seed=seed, clients=count, noise=noise)
                total = total + share.astype(np.int64)
            got = scheme.decode(total, seed=seed, dimension=dimension, clients=count)
            found.append(float((got - mean) @ mean) / float(np.linalg.norm(mean)))
            errors.append(float(np.square(got - mean).sum()))
        assert abs(np.mean(found)) <= 5 * np.std(found, ddof=1) / math.sqrt(rounds)
        slack = 5 * math.sqrt(2.0 / (rounds * dimension))
        expected = scheme.expected_error(dimension, clients=count)
        assert np.mean(errors) == pytest.approx(expected, rel=slack)
    # where all of a cohort answered, all their noise counts
    scarce = jopeq.ClientSum(**COMMON, clients=20, threshold=14).expected_error(1500)
    assert (scheme.expected_error(1500) == scarce) == (dropouts == "recover")
    assert scheme.expected_error(1500) <= scarce


def test_long_updates_are_clipped_and_short_ones_are_not():
    scheme, update = jopeq.ClientSum(**{**COMMON, "clip": 2.0}, clients=10, threshold=7), np.eye(50)
    for size, expected in ((1.5, 1.5), (150.0, 2.0)):
        assert scheme.total(size * update[3]).to_numpy()[3] == pytest.approx(expected, rel=1e-5)


def test_whatever_the_floats_are_a_share_comes():
    scheme = jopeq.ClientSum(**COMMON, clients=10, threshold=7)
    plan, narrow = scheme.plan(300), np.zeros((10, 30), np.float16)
    mixed = np.where(np.arange(300) % 2, np.float32(3e38), np.float32(-np.inf))
    for update in (np.full(300, np.nan), np.full(300, 1e300), mixed, narrow, np.arange(600.0)[::2]):
        with np.errstate(all="raise"):
            share = scheme.encode(update, seed=SEED)
        assert (share.shape, share.dtype) == ((300,), plan.dtype)
        assert int(share.max()) < 1 << plan.bits


def test_invalid_entries_count_as_zero_or_the_clip():
    torch = pytest.importorskip("torch")
    scheme = jopeq.ClientSum(**COMMON, clients=10, threshold=7)
    update, clean = np.full(300, 0.01), np.full(300, 0.01)
    update[:3], clean[:3] = (np.nan, -np.inf, 1e60), (0.0, -1.0, 1.0)
    state = {"a": torch.from_numpy(clean[:100].reshape(10, 10)), "n": 3, "b": clean[100:]}
    shares = [
        scheme.encode(each, seed=SEED, noise=PrivateStream.reproducible(bytes(32)))
        for each in (update, clean, state)
    ]
    assert (shares[0] == shares[1]).all()
    assert (shares[0] == shares[2]).all()  # a state is its entries, one after the other


def test_the_guarantee_and_the_spec():
    given = {**COMMON, "clients": 100, "threshold": 67, "bits": 13}
    scheme = jopeq.scheme("clients", **given)
    assert scheme == jopeq.ClientSum(**given)
    assert jopeq.scheme_from_spec(scheme.spec) == scheme
    assert scheme.plan(1000).payload_bits == 13 * 1000
    stated = scheme.guarantee
    assert (stated.epsilon, stated.delta) == (4.0, 1e-5)
    assert (stated.unit, stated.adversary) == ("client", "sum")
    assert "attempt" not in str(stated)
    assert "failed attempts included" in str(jopeq.ClientSum(**given, dropouts="repeat").guarantee)


def test_a_curious_participant_is_counted_unless_told_otherwise():
    """Who subtracts their own share from a sum of three faces the noise of two."""
    given = {"epsilon": 4.0, "clip": 1.0, "clients": 5, "threshold": 4}
    scheme = jopeq.ClientSum(**given)
    assert (scheme.colluding, scheme.sum.honest()) == (1, 3)
    assert "at most 1 colluding client" in str(scheme.guarantee)
    more = scheme.expected_error(100) / jopeq.ClientSum(**given, colluding=0).expected_error(100)
    assert more == pytest.approx(4 / 3, rel=0.03)


def test_refusals_name_what_a_user_of_clients_can_change():
    given = {**COMMON, "clients": 1000, "threshold": 1000}
    with pytest.raises(PlanError, match=r"bits=8 cannot .*: bits=\d+ or largest_mean=\S+ would"):
        jopeq.ClientSum(**given, bits=8).plan(7850)
    many = {"epsilon": 8.0, "clip": 1.0, "clients": 10_000, "threshold": 10_000, "rounds": 100}
    with pytest.raises(PlanError, match="raise delta") as refused:
        jopeq.ClientSum(**many).plan(15_610)
    assert refused.value.code == "tables"
    assert jopeq.ClientSum(**many, delta=1e-4).plan(15_610).epsilon <= 8.0


def test_wrong_arguments_are_refused():
    """What ``RecordSum`` refuses is tested there: a few show that it is asked."""
    scheme = jopeq.ClientSum(**COMMON, clients=10, threshold=7)
    for empty in (np.empty(0), {"steps": np.array(3)}):
        with pytest.raises(ValueError, match="dimension must be"):
            scheme.encode(empty, seed=SEED)
    with pytest.raises(jopeq.UpdateError, match="only floats"):
        scheme.encode(np.zeros(3, int), seed=SEED)
    for count in (0, 6, 11):
        with pytest.raises(ValueError, match="clients"):
            scheme.decode(np.zeros(3, int), seed=SEED, dimension=3, clients=count)
    for wrong in ({"dropouts": "ready"}, {"rounds": 0}, {"threshold": 5}, {"bits": 40}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            jopeq.ClientSum(**{**COMMON, "clients": 10, "threshold": 7, **wrong})


def test_kept_runs_of_the_mechanism_before_this_one_stand(capsys):
    """Results at client level were made by another one, whose error in each setting was kept.

    The errors of ``ClientSum`` are within 4% of it, so what was learnt is what is learnt today.
    """
    rows = map(json.loads, (RESULTS / "secure_sum_errors.jsonl").read_text().splitlines())
    ratios = []
    for row in rows:
        scheme = jopeq.ClientSum(**row["scheme"], clip=1.0)
        ratios.append(scheme.expected_error(row["dimension"]) / row["error"])
    with capsys.disabled():
        least, middle, most = min(ratios), np.median(ratios), max(ratios)
        print(f"\nerrors of {len(ratios)} settings: {least:.3f} to {most:.3f} of those kept, "
              f"median {middle:.4f}")  # fmt: skip
    assert 0.96 <= least <= most <= 1.04


def test_golden_shares():
    stored = json.loads(make_shares.FILE.read_text())
    assert stored == {name: make_shares.made(case) for name, case in make_shares.CASES.items()}
