"""Hazard ratios: rows that nothing clips, estimates without noise, intervals, the C-index."""

import math

import numpy as np
import pytest

from jopeq.models import Category, Fit, Hazard, Number, model_from_spec
from jopeq.models.hazard import concordance
from jopeq.models.method import Records

CUTS = (0, 1, 2, 4, 10)
TERMS = {"event": "e", "cuts": CUTS, "clients": 10, "threshold": 8, "records": 4000}
COLUMNS = [Number("a", -1, 1), Number("b", -1, 1), Category("c", [0, 1])]
BETA = np.array([1.0, -0.7, 0.5])


def patients(count, rng, rate=0.12):
    x = np.c_[rng.uniform(-1, 1, (count, 2)), rng.integers(0, 2, count)]
    time, end = rng.exponential(1 / (rate * np.exp(x @ BETA))), rng.uniform(2, 12, count)
    kept = {"t": np.minimum(time, end), "e": (time <= end).astype(float)}
    return {**kept, "a": x[:, 0], "b": x[:, 1], "c": x[:, 2].astype(int)}


def test_no_row_is_longer_than_one_and_none_is_clipped():
    rng, method = np.random.default_rng(0), Hazard("t", COLUMNS, epsilon=1, **TERMS).method
    x = rng.uniform(-1, 1, (20_000, method.slopes)) / method.length
    x[::3] = np.sign(x[::3]) / method.length
    watched = rng.random((len(x), 4)) * rng.integers(0, 2, (len(x), 4)) / 4
    rows = np.c_[np.full(len(x), 1 / method.length), x]
    records, longest = Records(rows, np.c_[watched, rng.integers(0, 5, len(x))]), []
    for scale in (0.1, 1, 3, 10, 100):
        found = method.rows(records, scale * rng.normal(size=method.size))
        longest.append(np.linalg.norm(found, axis=1).max())
    assert max(longest) <= 1 + 1e-12
    assert max(longest) > 0.99  # the bound is reached


def test_a_row_depends_on_its_own_record():
    rng = np.random.default_rng(1)
    model, table = Hazard("t", COLUMNS, epsilon=1, **TERMS), patients(50, rng)
    table["e"][3], table["t"][4], table["a"][5], table["t"][6] = 2, math.nan, math.nan, 0.0
    sent = {"weights": rng.normal(size=model.method.size)}

    def total(some):
        return model.total(model.read({k: v[some] for k, v in table.items()}), 1, sent).values

    each = [total(slice(one, one + 1)) for one in range(50)]
    np.testing.assert_array_equal(sum(each), total(slice(None)))
    assert [place for place, one in enumerate(each) if not one.any()] == [3, 4, 5, 6]


def test_without_noise_estimates_are_the_truth_although_watching_ends_early(fit_centrally):
    fit = fit_centrally(
        Hazard("t", COLUMNS, epsilon=8, **(TERMS | {"records": 60_000})),
        patients(60_000, np.random.default_rng(2)),
        None,
    )
    for found, true in zip(list(fit.values())[1:], BETA, strict=True):
        assert abs(found.value - true) < 5 * found.error
        assert found.error < 0.03
    hazards = [value for name, value in fit.figures.items() if name.startswith("hazard")]
    np.testing.assert_allclose(hazards, 0.12, rtol=0.1)


def test_intervals_cover(fit_centrally):
    """40 fits of 4,000 patients at ε = 1: five standard errors of a share."""
    rng, inside = np.random.default_rng(3), []
    model = Hazard("t", COLUMNS, epsilon=1, **TERMS)
    for _ in range(40):
        fit = fit_centrally(model, patients(4000, rng), rng)
        pairs = zip(list(fit.values())[1:], BETA, strict=True)
        inside += [low < true < high for one, true in pairs for low, high in [one.interval]]
    assert np.mean(inside) == pytest.approx(0.95, abs=5 * math.sqrt(0.95 * 0.05 / 120))


def test_real_shares_a_forest_plot_and_the_c_index(tmp_path):
    rng = np.random.default_rng(4)
    model, table = Hazard("t", COLUMNS, epsilon=2, **TERMS), patients(4000, rng)
    fit = model.fit([{name: one[start::10] for name, one in table.items()} for start in range(10)])
    for found, true in zip(list(fit.values())[1:], BETA, strict=True):
        assert abs(found.value - true) < 6 * found.error
    assert "hazard ratio" in str(fit)
    fit.plot().savefig(tmp_path / "forest.png")
    other = patients(2000, np.random.default_rng(5))
    risks = np.c_[other["a"], other["b"], other["c"]] @ BETA
    best = concordance(other["t"], other["e"], risks)
    assert fit.score(other) == pytest.approx(best, abs=0.02)
    fit.save(tmp_path / "fit.json")
    assert Fit.load(tmp_path / "fit.json").score(other) == fit.score(other)
    assert model_from_spec(model.spec) == model


def test_concordance_counts_pairs_whose_order_is_known():
    times, events = np.array([1.0, 2.0, 2.0, 3.0]), np.array([1, 0, 1, 0])
    assert concordance(times, events, np.array([4.0, 3.0, 2.0, 1.0])) == 1.0
    assert concordance(times, events, np.array([1.0, 2.0, 3.0, 4.0])) == 0.0
    assert concordance(times, events, np.ones(4)) == 0.5
    assert math.isnan(concordance(times, np.zeros(4), np.ones(4)))
