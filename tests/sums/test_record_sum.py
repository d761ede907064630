"""``records``: sampling, shares, decoding, plans, refusals, the ledger."""

from __future__ import annotations

import json
import math
import pickle
import re

import numpy as np
import pytest

import jopeq
from jopeq.errors import BudgetSpentError, JoPEQError
from jopeq.random.streams import PrivateStream
from jopeq.sums import record_sample, record_sum
from jopeq.sums.record_accounting import epsilon_of
from jopeq.sums.record_plan import settle

SEED = bytes(range(32))
GIVEN = {"epsilon": 1.0, "clip": 0.5, "records": 4000, "sampling": 0.25, "rounds": 20}
GIVEN |= {"clients": 4, "threshold": 3, "most_records": 1200}
DIMENSION = 60


def noise(number=0):
    return PrivateStream.reproducible(number.to_bytes(32, "little"))


def rows_of_hospital(number, count=800):
    rows = np.random.default_rng(number).normal(size=(count, DIMENSION))
    rows[:, 2] += 6.0
    return rows * np.linspace(0.01, 0.2, count)[:, None]


def clipped(rows, clip):
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows * np.minimum(1.0, clip / np.maximum(norms, 1e-300))


@pytest.fixture(scope="module")
def scheme():
    return jopeq.RecordSum(**GIVEN)


# Plans


@pytest.mark.parametrize("dropouts", ["repeat", "recover"])
def test_mnist_takes_ten_bits_and_pays_little(dropouts):
    given = {"records": 60_000, "sampling": 0.14, "rounds": 60, "clients": 10, "threshold": 6}
    scheme = jopeq.RecordSum(**given, epsilon=1.0, clip=1.0, largest_mean=0.3, dropouts=dropouts)
    plan = scheme.plan(5210)
    assert plan.bits <= 10
    assert plan.honest == (5 if dropouts == "recover" else 9)
    assert plan.price <= 1.06
    assert plan.error / plan.central_error <= 1.06 * 10 / plan.honest
    assert 0.99 <= plan.epsilon <= 1.0
    assert plan.delta == 1e-5


def test_a_plan_belongs_to_a_cohort(scheme):
    plans = [scheme.plan(DIMENSION, clients) for clients in (3, 4)]
    assert [plan.honest for plan in plans] == [2, 3]
    assert plans[0].noise_multiplier == plans[1].noise_multiplier
    assert plans[0].sigma * math.sqrt(2) == pytest.approx(plans[1].sigma * math.sqrt(3), rel=0.5)
    recovers = jopeq.RecordSum(**GIVEN, dropouts="recover")
    assert recovers.plan(DIMENSION, 3) == recovers.plan(DIMENSION, 4)


def test_epsilon_is_recomputed_from_the_integers_of_a_plan(scheme):
    numbers = scheme.plan(DIMENSION, 3).integers
    assert settle(scheme, numbers) == scheme.plan(DIMENSION, 3)
    *_, bound, multiplier = numbers
    more = (*numbers[:5], multiplier * (1 + 2**-9))  # a multiplier that B does not keep
    less = (*numbers[:4], int(bound * 1.01), multiplier)  # a row of more places
    weak = (*numbers[:4], int(bound * 1.01), multiplier / 1.02)  # consistent, and above ε
    for wrong in (more, less, weak, (*numbers[:3], 1, *numbers[4:])):
        with pytest.raises(ValueError, match=r"plan|sigma"):
            settle(scheme, wrong)
    assert settle(scheme, (*numbers[:4], bound - 9, multiplier)).epsilon <= 1.0  # a coarser step


def test_the_guarantee_is_of_a_record(scheme):
    guarantee = scheme.guarantee
    assert (guarantee.unit, guarantee.adversary, guarantee.epsilon) == ("record", "sum", 1.0)
    text = str(guarantee)
    for word in ("in the data at all", "one hospital", "20 rounds", "attempt", "0.25", "colluding"):
        assert word in text
    assert "at most 3 hospitals" in str(jopeq.RecordSum(**GIVEN, hospitals_per_person=3).guarantee)
    visits = jopeq.RecordSum(
        **(GIVEN | {"sampling": 1.0}), hospitals_per_person=9
    )  # of 4 hospitals
    assert "at most 9 records, in one hospital or several" in str(visits.guarantee)
    alone = jopeq.RecordSum(**(GIVEN | {"sampling": 1.0})).plan(31).noise_multiplier
    assert visits.plan(31).noise_multiplier == pytest.approx(9 * alone, rel=0.01)
    assert pickle.loads(pickle.dumps(scheme)) == scheme
    assert jopeq.scheme_from_spec(scheme.spec) == scheme == jopeq.scheme("records", **GIVEN)


# Sampling


def test_each_record_is_drawn_with_its_chance():
    count = 1 << 20
    scheme = jopeq.RecordSum(**{**GIVEN, "records": count, "most_records": count})
    drawn = scheme.sample(count, noise=noise())
    assert (np.diff(drawn) > 0).all()
    assert 0 <= drawn[0] <= drawn[-1] < count
    assert abs(len(drawn) / count - 0.25) <= 5 * math.sqrt(0.25 * 0.75 / count)
    assert scheme.sample(1000).tolist() != scheme.sample(1000).tolist()
    every = jopeq.RecordSum(**{**GIVEN, "sampling": 1.0})
    assert every.sample(50).tolist() == list(range(50))
    for wrong in ((count + 1,), (5, 4), (1, count + 1), (2.5,)):
        with pytest.raises(ValueError, match=r"count|most_records"):
            scheme.sample(*wrong)


def test_a_sample_beyond_its_capacity_is_cut_at_random(monkeypatch):
    """Nothing but a capacity's worth is ever computed; who is left out does not depend on order."""
    monkeypatch.setattr(record_sample, "draw_records", lambda count, *_: np.ones(count, bool))
    scheme = jopeq.RecordSum(**GIVEN)
    most, found = scheme.capacity(900), [scheme.sample(800, 900) for _ in range(200)]
    assert 900 * 0.25 < most < 900 * 0.25 + 8 * math.sqrt(900 * 0.25)
    assert {len(drawn) for drawn in found} == {most}
    times = np.bincount(np.concatenate(found), minlength=800)
    chance = most / 800
    slack = 6 * math.sqrt(200 * chance * (1 - chance))  # 800 records: 10⁻⁶ in all
    assert np.abs(times - 200 * chance).max() <= slack


# Coding


@pytest.mark.parametrize("kind", ["rows", "total", "tensor"])
def test_the_mean_of_all_records_comes_back(kind):
    """Unbiased, with the error that the plan states, over several rounds."""
    scheme = jopeq.RecordSum(**{**GIVEN, "sampling": 1.0, "records": 3200, "epsilon": 4.0})
    hospitals = [rows_of_hospital(i) for i in range(4)]
    as_given = pytest.importorskip("torch").from_numpy if kind == "tensor" else lambda rows: rows
    mean = sum(clipped(rows, 0.5).sum(axis=0) for rows in hospitals) / 3200
    plan, rounds, errors = scheme.plan(DIMENSION), 6, []
    for number in range(rounds):
        seed, total = number.to_bytes(32, "big"), 0
        for rows in hospitals:
            given = jopeq.ClippedTotal(DIMENSION, 0.5).add(rows) if kind == "total" else rows
            share = scheme.encode(as_given(given), seed=seed)
            assert share.dtype == plan.dtype
            assert int(share.max()) < 1 << plan.bits
            total = total + share.astype(np.int64)
        got = scheme.decode(total, seed=seed, dimension=DIMENSION, clients=4)
        errors.append(got - mean)
    squares = np.square(errors).sum() / rounds / 0.25
    assert squares == pytest.approx(plan.error, rel=5 * math.sqrt(2 / (rounds * DIMENSION)))
    bias = np.mean(errors) / math.sqrt(plan.error * 0.25 / DIMENSION)
    assert abs(bias) <= 5 / math.sqrt(rounds * DIMENSION)


def test_places_are_unbiased_and_end_at_a_public_bound():
    values = np.array([0.0, 0.25, -0.25, 1e300, -1e300, np.inf, -(2.0**40) - 0.5])
    found = np.array([record_sum.place(values.copy(), noise(i)) for i in range(2000)])
    assert (found[:, 0] == 0).all()
    assert (found[:, 3] == 1 << 48).all()
    assert (found[:, 4] == -(1 << 48)).all()
    for column in (1, 2, 6):
        assert abs((found[:, column] - values[column]).mean()) <= 5 * 0.5 / math.sqrt(2000)


def test_whatever_the_rows_are_a_share_comes(scheme):
    bad = np.full((5, DIMENSION), np.nan)
    bad[1], bad[2], bad[3] = np.inf, 1e300, 5e-324
    with np.errstate(all="raise"):
        shares = [scheme.encode(rows, seed=SEED, noise=noise()) for rows in (bad[:1], bad[:0], bad)]
    assert (shares[0] == shares[1]).all()  # a bad row is a row of zeros
    assert len(shares[2]) == DIMENSION


# Refusals


@pytest.mark.parametrize(
    "bad",
    [
        *({"sampling": value} for value in (0.0, 1.5, math.nan, "half")),
        *({"records": value} for value in (0, -5, 2**32, 3.5)),
        *({"rounds": value} for value in (0, -1, 1.5, 100_001)),
        *({"threshold": value} for value in (2, 5)),
        *({"clip": value} for value in (0.0, -1.0, math.inf)),
        *({"bits": value} for value in (0, 33)),
        *({"hospitals_per_person": value} for value in (0, 5)),
        {"hospitals_per_person": 65, "clients": 100},
        {"most_records": 0},
        {"largest_mean": 0.0},
        {"batch_dependence": -1.0},
        {"dropouts": "never"},
        *({"epsilon": value} for value in (0.0, 64.5)),
        {"colluding": -1},
        {"delta": 0.0},
        {"delta": 9e-12},  # the accountant rounds
        {"records": 3},
        {"clients": 2},
        {"threshold": 3, "clients": 5, "dropouts": "recover"},
    ],
    ids=str,
)
def test_a_bad_parameter_is_named(bad):
    name = "sampling" if bad == {"records": 3} else next(iter(bad))
    with pytest.raises(ValueError, match=rf"^{name}\b"):
        jopeq.RecordSum(**{**GIVEN, **bad})


def test_bad_input_is_refused_with_its_name(scheme):
    rows, good = np.zeros((3, DIMENSION)), {"seed": SEED, "dimension": DIMENSION, "clients": 4}
    total = np.zeros(DIMENSION, dtype=np.int64)
    with pytest.raises(ValueError, match="seed"):
        scheme.encode(rows, seed=b"short")
    with pytest.raises(ValueError, match="clients"):
        scheme.encode(rows, seed=SEED, clients=2)
    for wrong in (np.zeros(DIMENSION), [], rows[None]):
        with pytest.raises((JoPEQError, ValueError), match="rows"):
            scheme.encode(wrong, seed=SEED)
    with pytest.raises(ValueError, match="clip"):
        scheme.encode(jopeq.ClippedTotal(DIMENSION, 1.0), seed=SEED)
    for wrong in (total[1:], total.astype(float), total[None]):
        with pytest.raises(ValueError, match="total"):
            scheme.decode(wrong, **good)
    for name, value in (("clients", 5), ("dimension", 0), ("seed", b"")):
        with pytest.raises(ValueError, match=name):
            scheme.decode(total, **{**good, name: value})


@pytest.mark.parametrize(
    ("dimension", "changes", "remedies"),
    [
        (DIMENSION, {"bits": 5}, ["bits", "records", "largest_mean"]),
        (31, {"bits": 4, "records": 400, "sampling": 1.0}, ["bits", "records", "largest_mean"]),
        (DIMENSION, {"bits": 3, "clients": 10, "threshold": 5}, ["bits"]),  # noise alone wraps
        (10**7, {"sampling": 1.0, "epsilon": 0.1, "rounds": 200}, ["rounds", "records", "epsilon"]),
    ],
)
def test_a_plan_that_cannot_be_says_what_would_do(dimension, changes, remedies):
    given = {**GIVEN, **changes}
    with pytest.raises(ValueError, match=r"would do$") as refused:
        jopeq.RecordSum(**given).plan(dimension)
    said = str(refused.value).rpartition(": ")[2].removesuffix(" would do").split(" or ")
    assert [one.partition("=")[0] for one in said] == remedies
    for one in said:
        change = {name: json.loads(value) for name, value in re.findall(r"(\w+)=([\d.e+-]+)", one)}
        changed = jopeq.RecordSum(**{**given, **change})
        assert changed.plan(dimension).epsilon <= changed.epsilon


def test_delta_may_be_too_small_for_the_tables():
    with pytest.raises(ValueError, match="delta"):
        jopeq.RecordSum(**{**GIVEN, "epsilon": 20.0, "rounds": 400}).plan(10_000_000)


# Evaluations


def test_evaluations_are_part_of_the_same_epsilon(scheme):
    both = jopeq.RecordSum(**GIVEN, evaluations=5)
    more = jopeq.RecordSum(**{**GIVEN, "rounds": both.sums})
    evaluation = both.evaluation
    # every sum of the two kinds has the noise of a run of as many rounds
    multipliers = {
        more.plan(DIMENSION).noise_multiplier,
        both.plan(DIMENSION).noise_multiplier,
        evaluation.plan(128).noise_multiplier,
    }
    assert len(multipliers) == 1
    assert multipliers.pop() > scheme.plan(DIMENSION).noise_multiplier
    spent = (both.spend(DIMENSION, both.rounds), evaluation.spend(128, 5))
    found = epsilon_of(spent, both.delta, both.epsilon)
    assert 0.99 * both.epsilon < found <= both.epsilon
    one_more = (both.spend(DIMENSION, both.rounds), evaluation.spend(128, 6))
    assert epsilon_of(one_more, both.delta, 2 * both.epsilon) > 1.005 * found
    assert "5 evaluations" in str(both.guarantee)
    with pytest.raises(ValueError, match="evaluations"):
        _ = scheme.evaluation
    with pytest.raises(ValueError, match="evaluations"):
        jopeq.RecordSum(**GIVEN, evaluations=-1)


# The ledger


def test_a_ledger_composes_the_rounds_of_all_runs(scheme, tmp_path):
    ledger = jopeq.Ledger(budget=1.2, delta=1e-5)
    statistics = jopeq.RecordSum(**{**GIVEN, "epsilon": 0.4, "sampling": 1.0, "rounds": 1})
    ledger.charge(statistics, 10)
    assert 0.38 <= ledger.spent.epsilon <= 0.4
    for _ in range(scheme.rounds):
        ledger.charge(scheme, DIMENSION)
    assert ledger.spent.unit == "record"
    assert 1.0 < ledger.spent.epsilon < 1.2  # 0.4 and 1.0 together
    done = [(run.spent.rounds, run.planned) for run in ledger.runs]
    assert done == [(1, 1), (20, 20)]
    with pytest.raises(BudgetSpentError, match="rounds"):
        ledger.charge(scheme, DIMENSION)
    ledger.save(tmp_path / "ledger")
    again = jopeq.Ledger.load(tmp_path / "ledger")
    assert (again.spent, again.runs, again.rounds) == (ledger.spent, ledger.runs, 21)
    tight = jopeq.Ledger(budget=1.1 * statistics.epsilon, delta=1e-5)
    tight.charge(statistics, 10)
    with pytest.raises(BudgetSpentError, match="budget"):
        tight.charge(statistics, 10, run="another")
    again.charge(scheme, DIMENSION, run="another")
    assert 1.0 < again.spent.epsilon <= 1.2
    with pytest.raises(ValueError, match="counts what a record spends"):
        again.charge(jopeq.ClientSum(epsilon=0.1, clip=1.0, clients=5, threshold=4), 10)
    with pytest.raises(ValueError, match="delta"):
        jopeq.Ledger(budget=3.0).charge(scheme, DIMENSION)


def test_totals_that_no_shares_make_are_refused():
    scheme, size = jopeq.RecordSum(**GIVEN), 2000
    bits, rng = scheme.plan(size, 3).bits, np.random.default_rng(5)
    shares = [scheme.encode(rng.normal(size=(50, size)), seed=SEED, clients=3) for _ in range(3)]
    total = sum(share.astype(np.int64) for share in shares) % (1 << bits)
    given = {"seed": SEED, "dimension": size, "clients": 3}
    assert np.linalg.norm(scheme.decode(total, **given)) < 1.0
    mask = rng.integers(0, 1 << bits, size)
    with pytest.raises(JoPEQError) as refused:
        scheme.decode((total + mask) % (1 << bits), **given)
    assert refused.value.code == "total"
