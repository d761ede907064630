"""Evaluations: rows of scores, the figures that they give, intervals, groups."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, roc_auc_score

from jopeq import RecordSum
from jopeq.random.streams import fresh_seed
from jopeq.statistics import Scoring

number = st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 1)


def scheme_of(records, epsilon=1.0):
    return RecordSum(
        epsilon=epsilon, clip=1.0, records=records, sampling=1.0, rounds=1, clients=10, threshold=8
    )


def patients(count, rng, slope=1.5, over=1.0):
    """Scores of a model whose logits are ``over`` times too large, and outcomes."""
    x = rng.normal(0, slope, count)
    outcomes = (rng.random(count) < 1 / (1 + np.exp(-x))).astype(float)
    return 1 / (1 + np.exp(-over * x)), outcomes


def without_noise(scoring, *given):
    count = len(given[0])
    scheme = scheme_of(count, 8.0)
    return scoring.read(scoring.rows(*given).sum(axis=0) / count, scheme)


@given(records=st.lists(st.tuples(number, number, st.sampled_from("ABC")), max_size=8))
def test_a_row_is_a_function_of_its_record_and_no_longer_than_one(records):
    scoring = Scoring(levels=("A", "B"), threshold=0.3)

    def rows_of(some):
        p, y, by = zip(*some, strict=True)
        return scoring.rows(np.array(p), np.array(y), scoring.places(by))

    for one, row in zip(records, rows_of(records) if records else (), strict=True):
        np.testing.assert_array_equal(rows_of([one])[0], row)
        assert np.linalg.norm(row) <= 1.0 + 1e-12
        p, y, by = one
        is_told = 0 <= p <= 1 and 0 <= y <= 1 and by != "C"
        assert row.any() == is_told


@given(p=st.floats(0.001, 0.999), threshold=st.floats(0.01, 0.99))
def test_last_digits_of_a_score_move_a_row_by_as_little(p, threshold):
    scoring = Scoring(threshold=threshold)
    rows = scoring.rows(np.array([p, p + 1e-13]), np.ones(2))
    assert np.linalg.norm(rows[1] - rows[0]) < 1e-6


@pytest.mark.parametrize("threshold", [0.5, 0.2])
def test_without_noise_figures_are_those_of_the_scores(threshold):
    p, y = patients(20_000, np.random.default_rng(0), over=1.6)
    found = without_noise(Scoring(threshold=threshold), p, y)
    says = p >= threshold
    expected = {
        "accuracy": np.mean(says == y),
        "sensitivity": np.mean(says[y == 1]),
        "specificity": np.mean(~says[y == 0]),
        "AUC": roc_auc_score(y, p),
        "Brier score": brier_score_loss(y, p),
    }
    for name, value in expected.items():
        assert found.figures[name].value == pytest.approx(value, abs=1e-3), name
    logits = np.log(p / (1 - p))[:, None]
    model = LogisticRegression(C=math.inf).fit(logits, y)
    assert found.figures["calibration slope"].value == pytest.approx(model.coef_[0, 0], abs=0.02)
    intercept = found.figures["calibration intercept"].value
    assert intercept == pytest.approx(model.intercept_[0], abs=0.02)
    assert found.records.value == pytest.approx(20_000)
    rates = found.curves["roc"]
    assert np.trapezoid(rates[1], rates[0]) == pytest.approx(expected["AUC"], abs=2e-3)
    score, outcome, lower, upper = found.curves["calibration"]
    assert len(score) >= 8
    for left, value, low, high in zip(score, outcome, lower, upper, strict=True):
        near = np.abs(p - left) < 0.05
        assert value == pytest.approx(y[near].mean(), abs=0.06)
        assert low < value < high


def test_intervals_cover_and_the_sampling_part_is_that_of_the_figures():
    """300 evaluations of 4,000 records at ε = 0.25: shares within five standard errors."""
    rng, scoring, scheme = np.random.default_rng(3), Scoring(), scheme_of(4000, 0.25)
    error = math.sqrt(scheme.plan(scoring.dimension).error / scoring.dimension)
    true_p, true_y = patients(200_000, rng)
    true = {
        "AUC": roc_auc_score(true_y, true_p),
        "Brier score": brier_score_loss(true_y, true_p),
        "accuracy": np.mean((true_p >= 0.5) == true_y),
        "calibration slope": 1.0,
    }
    wrong, inside = {name: [] for name in true}, {name: [] for name in true}
    for _ in range(300):
        mean = scoring.rows(*patients(4000, rng)).sum(axis=0) / 4000
        found = scoring.read(mean + rng.normal(0, error, scoring.dimension), scheme).figures
        for name, value in true.items():
            wrong[name].append(found[name].value - value)
            inside[name].append(found[name].lower <= value <= found[name].upper)
    for name, found in inside.items():
        assert np.mean(found) == pytest.approx(0.95, abs=5 * 0.0126), name
    assert np.sqrt(np.mean(np.square(wrong["AUC"]))) < 0.02


def test_real_shares_groups_and_pictures(tmp_path):
    rng = np.random.default_rng(5)
    scoring = Scoring(levels=("old", "new"))
    good, bad = patients(2000, rng, slope=2.5), patients(2000, rng, slope=0.5)
    p, y = (np.concatenate(pair) for pair in zip(good, bad, strict=True))
    by = np.repeat(["new", "old"], 2000)
    scheme, seed = scheme_of(4000), fresh_seed()
    total = 0
    for hospital in range(10):
        mine = slice(hospital, None, 10)
        rows = scoring.rows(p[mine], y[mine], scoring.places(by[mine]))
        total = total + scheme.encode(rows, seed=seed).astype(np.int64)
    mean = scheme.decode(total, seed=seed, dimension=scoring.dimension, clients=10)
    found = scoring.read(mean, scheme, 10)
    for level, (scores, outcomes) in {"new": good, "old": bad}.items():
        auc = found.groups[level].figures["AUC"]
        assert auc.value == pytest.approx(roc_auc_score(outcomes, scores), abs=0.1)
        assert auc.lower < auc.value < auc.upper
    assert found.figures["AUC"].value == pytest.approx(roc_auc_score(y, p), abs=0.05)
    shown = str(found)
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.count("AUC") == 3
    assert json.loads(json.dumps(found.as_dict(), allow_nan=False))["groups"]["old"]["figures"]
    found.plot().savefig(tmp_path / "evaluation.png")
    assert len(found.plot().axes) == 2


@given(seed=st.integers(0, 2**32), scale=st.floats(1e-5, 1e-1), count=st.integers(0, 3000))
def test_evaluations_are_consistent_whatever_the_noise(seed, scale, count):
    rng, scoring, scheme = np.random.default_rng(seed), Scoring(), scheme_of(4000)
    mean = scoring.rows(*patients(count, rng)).sum(axis=0) / 4000
    found = scoring.read(mean + rng.normal(0, scale, scoring.dimension), scheme)
    for name, (value, lower, upper) in found.figures.items():
        assert lower <= value <= upper
        assert 0 <= lower <= upper <= 1 or name.startswith("calibration")
    assert json.dumps(found.as_dict(), allow_nan=False)
    for curve in found.curves.values():
        assert (curve >= 0).all()
        assert (curve <= 1).all()
    assert str(found)


def test_few_records_and_scores_without_outcomes():
    p, y = patients(60, np.random.default_rng(1))
    few = Scoring().read(Scoring().rows(p, y).sum(axis=0) / 4000, scheme_of(4000))
    assert (few.figures, few.curves) == ({}, {})
    assert "too few records" in str(few)
    with pytest.raises(ValueError, match="no curve"):
        few.plot()
    p, y = patients(5000, np.random.default_rng(1))
    alone = without_noise(Scoring(), p, np.zeros(5000)).figures
    assert set(alone) == {"accuracy", "Brier score"}
    rated = Scoring(kind="score")
    assert rated.dimension == Scoring().dimension // 2
    score = without_noise(rated, p, np.ones(5000)).figures["score"]
    assert score.value == pytest.approx(p.mean(), abs=1e-9)
    classes = without_noise(Scoring(kind="classes"), p, y).figures
    assert classes["accuracy"].value == pytest.approx(y.mean())
    assert "AUC" not in classes


def test_specs_and_refusals():
    scoring = Scoring(threshold=0.2, levels=["a", "b"])
    assert Scoring(**json.loads(scoring.spec)) == scoring
    for change, told in (
        ({"kind": "regression"}, "kind"),
        ({"threshold": 1.0}, "threshold"),
        ({"levels": ("a", "a")}, "levels"),
        ({"levels": "ab"}, "levels"),
    ):
        with pytest.raises(ValueError, match=told):
            Scoring(**change)
    with pytest.raises(ValueError, match="float64"):
        Scoring().rows(np.ones(3, dtype=np.float32), np.ones(3))
    with pytest.raises(ValueError, match="one for each"):
        Scoring().rows(np.ones(3), np.ones(2))
    with pytest.raises(ValueError, match="places"):
        scoring.rows(np.ones(3), np.ones(3))
