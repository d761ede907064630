"""Totals of models: how far one record moves them, in integers, and what exact laws make of it."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np
import pytest
from dp_accounting import get_epsilon_gaussian

from jopeq.models import (
    Bins,
    Category,
    Features,
    Hazard,
    Linear,
    Logistic,
    Number,
    Poisson,
    Softmax,
)
from jopeq.models import totals as exact
from jopeq.noise.gaussian_rounding import GaussianRounding
from jopeq.sums.clipped_total import UNITS
from jopeq.sums.sum_law import least_sigmas

TERMS = {"epsilon": 1.0, "clients": 3, "threshold": 3, "records": 3000}
COLUMNS = [Number("age", 18, 100), Category("sex", ["F", "M"]), Number("mass", 10, 60)]
RNG = np.random.default_rng(7)


def sent_for(model, step, scale):
    return {
        name: scale * RNG.normal(size=shape) for name, shape in model.method.shapes(step).items()
    }


def patients(count, rng):
    return {
        "age": rng.uniform(10, 110, count),
        "sex": rng.choice(["F", "M", "x", ""], count),
        "mass": rng.choice([math.nan, math.inf, 30.0, 55.5, -1e300], count),
        "y": rng.choice([0.0, 1.0, math.nan, 7.0, -3.0], count),
        "x": rng.normal(size=(count, 5)) * rng.choice([0, 1e-30, 0.3, 1e90, math.nan], (count, 1)),
    }


MODELS = {
    "logistic": Logistic("y", COLUMNS, **TERMS),
    "logistic, prediction": Logistic("y", COLUMNS, goal="prediction", **TERMS),
    "additive": Logistic("y", [*COLUMNS[:2], Bins("mass", 10, 60, missing=True)], **TERMS),
    "softmax": Softmax("y", COLUMNS, classes=[0, 1, 7], **TERMS),
    "features": Softmax("y", [Features("x", 5)], classes=[0, 1, 7], **TERMS),
    "linear": Linear("y", COLUMNS, bounds=(-2, 5), **TERMS),
    "linear, features": Linear("y", [Features("x", 5)], bounds=(-2, 5), **TERMS),
    "hazard": Hazard("age", COLUMNS[1:], event="y", cuts=(0, 20, 50, 100), **TERMS),
    "poisson": Poisson("y", COLUMNS[:2], most=6, exposure="age", most_exposure=90, **TERMS),
}


def take(table, places):
    return {name: one[places] for name, one in table.items()}


def integers(model, table, step, sent, **given):
    records = model.read(table, tell=lambda error: None, **given)
    return model.total(records, step, sent).values


def steps_of(model):
    """One of each kind."""
    last = model.method.messages - 1
    return {0, min(1, last), last}


def norm(values):
    return math.sqrt(sum(int(one) ** 2 for one in values))


@pytest.mark.parametrize("name", MODELS)
def test_one_record_moves_a_total_by_at_most_one(name):
    """Of whatever it holds, next to whatever others; in integers, and for any numbers sent."""
    model, rng = MODELS[name], np.random.default_rng(3)
    table, most = patients(40, rng), 0.0
    for step in steps_of(model):
        for scale in (0.0, 0.4, 1e14):
            sent = sent_for(model, step, scale)
            whole = integers(model, table, step, sent)
            for left_out in range(40):
                rest = integers(model, take(table, np.arange(40) != left_out), step, sent)
                most = max(most, norm(whole - rest))
    assert 0.5 * UNITS < most <= UNITS


LINES = ["20,1.0,True,1", "60,01,False,0", "70,2.0,TRUE,1"]


@pytest.mark.parametrize(
    "bad",
    [
        b"50,1,True",
        b"50,1,True,1,1",
        b"50,\xfc,x,1",
        b'50,"1,True,1',
        b"5," + b"1" * 200_000,
        b"x,x,x,x",
    ],
)
def test_a_line_that_does_not_fit_moves_a_total_by_no_more_than_a_record(bad, tmp_path):
    """Neither left out with its whole file, nor with the lines after it."""
    columns = [Number("age", 18, 100), Category("ward", ["1", "2"])]
    model, totals = Hazard("age", columns[1:], event="dead", cuts=(0, 50, 100), **TERMS), []
    lines = [line.encode() for line in LINES * 4]
    for number, held in enumerate((lines, [*lines[:1], bad, *lines[1:]])):
        path = tmp_path / f"{number}.csv"
        path.write_bytes(b"\n".join([b"age,ward,dead,y", *held]))
        totals.append(
            [integers(one, path, 0, {}) for one in (model, Logistic("y", columns, **TERMS))]
        )
    for without, with_it in zip(*totals, strict=True):
        assert norm(without) > UNITS
        assert norm(with_it - without) <= UNITS


def test_text_and_odd_rows_change_no_other_record():
    """A library that reads files makes a whole column text where one value is."""
    model = Hazard("t", [Category("ward", ["1", "True"])], event="dead", cuts=(0, 50, 100), **TERMS)
    numbers = {"t": [20, 60.5, 70], "ward": [np.float32(1), True, 1], "dead": [True, False, 1.0]}
    guessed = {name: [*map(str, one), "unknown"] for name, one in numbers.items()}
    assert (integers(model, numbers, 0, {}) == integers(model, guessed, 0, {})).all()
    model, rows = MODELS["features"], [[0.5] * 5, (0.1, 0.2, 0, 0, 0)]
    whole = integers(model, {"x": rows, "y": [1, 7]}, 0, {})
    for odd in ([1.0, 2.0], None, "text", [10**400] + [0] * 4):
        assert (integers(model, {"x": [*rows, odd], "y": [1, 7, 0]}, 0, {}) == whole).all()


def test_no_hospital_has_more_records_than_integers_hold(monkeypatch):
    with pytest.raises(ValueError, match="most_records"):
        Logistic("y", COLUMNS, **{**TERMS, "records": 1 << 23})
    monkeypatch.setattr("jopeq.models.model.MOST_RECORDS", 3000)
    table = {"age": np.full(3001, 50.0), "y": np.ones(3001)}
    model = Linear("y", COLUMNS[:1], bounds=(0, 2), **TERMS)
    assert len(model.read(table, tell=lambda error: None).rows) == 3000
    with pytest.raises(ValueError, match="entries"):  # which a server may ask for
        Logistic("y", [Bins(f"c{i}", 0, 1, count=256) for i in range(40)], **TERMS)


@pytest.mark.parametrize("name", MODELS)
def test_totals_have_the_same_bytes_in_any_order_and_padded(name):
    model, rng = MODELS[name], np.random.default_rng(4)
    table = patients(2500, rng)  # three chunks
    for step in steps_of(model):
        sent = sent_for(model, step, 0.5)
        found = integers(model, table, step, sent)
        for order in (slice(None, None, -1), rng.permutation(2500)):
            assert (integers(model, take(table, order), step, sent) == found).all()
        assert (integers(model, table, step, sent, pad=True) == found).all()


def test_a_row_of_gradient_and_hessian_is_longest_where_the_proof_says():
    """u²(1 + a²(1 − u)²) for u = |μ − y|; the integers come close to 1 and never beyond."""
    model = Logistic("y", [Number("age", -1, 1)], **TERMS)
    lengths = []
    for weight in np.linspace(-9, 9, 700):
        sent = {"weights": np.array([weight, weight])}
        total = integers(model, {"age": [1.0], "y": [0]}, 1, sent)
        lengths.append(norm(total) / UNITS)
    assert 0.98 < max(lengths) <= 1.0
    unsafe = 1.02 * model.method.family.balance  # a larger balance would break the bound
    assert max(u * math.hypot(1.0, unsafe * (1.0 - u)) for u in np.linspace(0.5, 1.0, 999)) > 1.0


def test_longest_rows_after_rounding_fit():
    rng = np.random.default_rng(5)
    for size in (1, 2, 40, 1500):
        rows = rng.choice([-1.0, 1.0], (3, size)) / math.sqrt(size)
        whole = exact.row_integers(rows)
        assert (np.abs(whole) > 0).all()  # not counted as zeros
        packed = exact.pack(exact.products(whole[:1], whole[:1]))
        assert norm(packed) + math.sqrt(exact.packed_size(size)) <= UNITS
    too_long = np.array([[1.0, 0.2], [math.nan, 0.0], [0.6, 0.8]])
    assert exact.row_integers(too_long).any(axis=1).tolist() == [False, False, True]


def test_logits_are_exact():
    rng = np.random.default_rng(6)
    rows = exact.row_integers(rng.normal(size=(50, 30)) / 9.0)
    weights = rng.normal(size=(30, 3)) * [0.1, 1.0, 3.0]
    found = exact.logits(rows, weights)
    order = rng.permutation(30)
    assert (exact.logits(rows[:, order], weights[order]) == found).all()
    assert np.allclose(found, rows / exact.ROW_SCALE @ weights, rtol=1e-6, atol=1e-9)
    assert not exact.logits(rows, np.full((30, 1), 1.5e-162)).any()  # their squares vanish


# Exact laws: the gradient of two weights, and of one


def share_law(law, fine, width=96):
    """Of a share of an entry at ``fine``/256 places: byte, then draw."""
    chances = np.zeros(2 * width + 1)
    places, counts = np.unique((fine + np.arange(256)) >> 8, return_counts=True)
    for place, count in zip(places.tolist(), counts.tolist(), strict=True):
        first, row = law.chances(place)
        chances[width + first : width + first + len(row)] += row * (count / 256)
    return chances


@pytest.mark.parametrize("dimensions", [1, 2])
def test_exact_delta_of_a_record(dimensions):
    """Tables with and without the worst record, through the sampler's tables of two hospitals."""
    model = Logistic("y", [Features("x", 1)], epsilon=1.0, clients=3, threshold=3, records=300)
    sent = {"weights": np.zeros((2, 1)), "centre": np.zeros(1)}
    worst = {"x": np.array([[1.0 if dimensions == 2 else 0.0]]), "y": [1]}
    others = {"x": np.array([[0.3], [-0.8]]), "y": [0, 1]}
    both = {"x": np.r_[worst["x"], others["x"]], "y": [1, 0, 1]}
    moved = integers(model, both, 1, sent) - integers(model, others, 1, sent)
    assert np.count_nonzero(moved) == dimensions
    law, bound = GaussianRounding(120, 4096), 5000
    fines = np.rint(256.0 * bound * moved / UNITS).astype(int)
    rest = share_law(law, 31)
    worlds = []
    for is_there in (1, 0):
        each = [
            np.convolve(rest, share_law(law, 33 + is_there * one)) for one in fines[:dimensions]
        ]
        worlds.append(reduce(np.multiply.outer, each))
    rounding = least_sigmas(1.0, dimensions, 2)[1]
    sigma = math.sqrt(2 * 120**2 - rounding**2) / 64
    apart = (bound + math.sqrt(dimensions) * (1 + 1 / 256)) / 4096  # in steps, with rounding
    alone = 0.9 * norm(moved) / UNITS * bound / 4096
    for epsilon in (0.3, 1.0, 2.0):
        delta = max(
            float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())
            for p, q in (worlds, worlds[::-1])
        )
        stated = get_epsilon_gaussian(sigma / apart, delta)
        assert get_epsilon_gaussian(sigma / alone, delta) < epsilon <= stated  # holds, and is tight


def test_all_sums_of_a_fit_stay_within_epsilon():
    for model in MODELS.values():
        steps = model.method.messages
        counts = {}
        for step in range(steps):
            scheme, size = model.sum_of(step), model.method.dimension(step)
            counts.setdefault((scheme.spec, size), [scheme.rounds, 0])[1] += 1
        assert all(allowed == made for allowed, made in counts.values())
        assert 0.98 < model.epsilon_after([1] * steps) <= 1.0
        assert model.epsilon_after([1] * steps) > model.epsilon_after([1] * (steps - 1))
        assert model.sum_of(0).batch_dependence == 0.0
