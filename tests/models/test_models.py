"""Models against converged fits without privacy, their intervals, and everything around a fit."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from jopeq.errors import DataError, PayloadError, TooFewClientsError
from jopeq.models import (
    Bins,
    Category,
    Features,
    Fit,
    Hazard,
    Linear,
    Logistic,
    Number,
    Poisson,
    Softmax,
    State,
    evaluate,
    model_from_spec,
    parse_column,
)
from jopeq.models.design import LENGTH
from jopeq.statistics.columns import simplex

TERMS = {"epsilon": 4.0, "clients": 4, "threshold": 3, "records": 12_000}
COLUMNS = [Number("age", 20, 90), Category("sex", ["F", "M"])]
MODELS = {
    "logistic": Logistic("death", COLUMNS, **TERMS),
    "linear": Linear("pressure", COLUMNS, bounds=(60, 220), **TERMS),
    "poisson": Poisson("falls", COLUMNS, most=8, exposure="years", most_exposure=4, **TERMS),
    "prediction": Logistic("death", COLUMNS, goal="prediction", **TERMS),
    "shapes": Logistic("death", COLUMNS, additive=True, **TERMS),
    "softmax": Softmax("group", COLUMNS, classes=["low", "middle", "high"], **TERMS),
    "features": Softmax("group", [Features("x", 6)], classes=["low", "middle", "high"], **TERMS),
}


def patients(count=12_000, seed=1):
    rng = np.random.default_rng(seed)
    age, is_man = rng.uniform(20, 90, count), rng.random(count) < 0.4
    pull = 0.05 * (age - 55) + 0.8 * is_man
    years = rng.uniform(0.5, 4, count)
    group = np.searchsorted([-0.5, 0.7], pull + rng.normal(0, 0.5, count))
    x = np.c_[pull, pull**2, rng.normal(size=(count, 4))]
    return {
        "age": age,
        "sex": np.where(is_man, "M", "F"),
        "death": rng.random(count) < 1 / (1 + np.exp(1 - pull)),
        "pressure": 110 + 12 * pull + rng.normal(0, 12, count),
        "years": years,
        "falls": rng.poisson(0.3 * years * np.exp(0.4 * pull)),
        "group": np.array(["low", "middle", "high"])[group],
        "x": x / np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True)),
    }


def take(table, places):
    return {name: one[places] for name, one in table.items()}


TABLE = patients()
HOSPITALS = [take(TABLE, slice(i, None, 4)) for i in range(4)]


def converge(x, y, mean_and_slope, times=1.0):
    """Maximum likelihood by Newton's method: (coefficients, standard errors)."""
    found = np.zeros(x.shape[1])
    for _ in range(30):
        mean, slope = mean_and_slope(x @ found, times)
        hessian = (x * slope[:, None]).T @ x
        found = found - np.linalg.solve(hessian, x.T @ (mean - y))
    return found, np.sqrt(np.diag(np.linalg.inv(hessian)))


def binomial(logit, _):
    mean = 1 / (1 + np.exp(-logit))
    return mean, mean * (1 - mean)


def counts(logit, times):
    return times * np.exp(logit), times * np.exp(logit)


# Against the truth


@pytest.mark.parametrize("name", ["logistic", "linear", "poisson"])
def test_coefficients_are_those_of_maximum_likelihood(name):
    """In the columns' units, within five of their own standard errors, through real shares."""
    model = MODELS[name]
    fit = model.fit(HOSPITALS)
    x = np.c_[np.ones(12_000), TABLE["age"] - 55, TABLE["sex"] == "M"]
    if name == "logistic":
        truth, usual = converge(x, TABLE["death"], binomial)
    elif name == "poisson":
        truth, usual = converge(x, TABLE["falls"], counts, TABLE["years"])
    else:
        truth = np.linalg.lstsq(x, TABLE["pressure"])[0]
        left = np.mean((TABLE["pressure"] - x @ truth) ** 2)
        usual = np.sqrt(left * np.diag(np.linalg.inv(x.T @ x)))
        assert fit.figures["residual variance"] == pytest.approx(left, rel=0.1)
        assert fit.figures["R²"] == pytest.approx(fit.score(TABLE), abs=0.05)
    assert list(fit) == ["(constant)", "age", "sex: M"]
    # The noise moves an error by up to half of what it adds: their mean of 16 is 7 deviations off
    errors = np.mean([[one.error for one in model.fit(HOSPITALS).values()] for _ in range(16)], 0)
    assert (usual < errors).all()
    for one, value, error in zip(fit.values(), truth, usual, strict=True):
        assert abs(one.value - value) < 5 * one.error
        assert one.error < 3 * error
        assert one.interval[0] < one.value < one.interval[1]
    assert fit["age"].p_value < 1e-6
    assert np.allclose(fit.coef_[0], [fit["age"].value, fit["sex: M"].value])
    assert 0.95 * 4 < fit.epsilon <= 4.0


def test_coverage_of_intervals(fit_centrally):
    """95% of them, tolerance five standard errors; without the noise's part far fewer cover."""
    terms = {"epsilon": 1.0, "clients": 10, "threshold": 8, "records": 1500}
    columns = [Number("a", -1, 1), Number("b", -1, 1), Category("c", [0, 1])]
    model = Logistic("y", columns, **terms)
    covers, too_narrow = [], []
    for seed in range(160):
        rng = np.random.default_rng(seed)
        x = np.c_[rng.uniform(-1, 1, (1500, 2)), rng.random(1500) < 0.3]
        truth = np.append(-0.5, rng.normal(0, 0.7, 3))
        y = rng.random(1500) < binomial(truth[0] + x @ truth[1:], None)[0]
        table = {"a": x[:, 0], "b": x[:, 1], "c": x[:, 2].astype(int), "y": y}
        fit = fit_centrally(model, table, rng)
        usual = converge(np.c_[np.ones(1500), x], y, binomial)[1]
        for one, value, error in zip(fit.values(), truth, usual, strict=True):
            if one.value is not None:
                covers.append(abs(one.value - value) < 1.96 * one.error)
                too_narrow.append(abs(one.value - value) < 1.96 * error)
    assert len(covers) > 550
    tolerance = 5 * math.sqrt(0.05 * 0.95 / len(covers))
    assert abs(np.mean(covers) - 0.95) < tolerance
    assert np.mean(too_narrow) < 0.95 - tolerance


@pytest.mark.parametrize(("name", "least"), [("prediction", 0.70), ("softmax", 0.66),
                                             ("features", 0.74), ("shapes", 0.70)])  # fmt: skip
def test_predictions_are_nearly_as_good_as_can_be(name, least):
    fit = MODELS[name].fit(HOSPITALS)
    held_out = patients(3000, seed=9)
    assert fit.score(held_out) > least
    chances = fit.predict_proba(held_out)
    assert np.allclose(chances.sum(axis=1), 1.0)
    assert (fit.predict(held_out) == fit.classes_[chances.argmax(axis=1)]).all()


def test_an_evaluation_is_that_of_the_predictions():
    fit, table = MODELS["logistic"].fit(HOSPITALS), patients(4000, seed=2)
    table["age"][:100] = np.nan  # counts as nothing
    hospitals = [take(table, slice(i, None, 4)) for i in range(4)]
    terms = {"epsilon": 4.0, "records": 4000, "threshold": 4}
    found = evaluate(fit, hospitals, by=COLUMNS[1], cut=0.4, **terms)
    chances, died = fit.predict_proba(table)[100:, 1], table["death"][100:]
    auc = np.mean(chances[died][:, None] > chances[~died])
    assert found.figures["AUC"].value == pytest.approx(auc, abs=0.02)
    right = np.mean((chances >= 0.4) == died)
    assert found.figures["accuracy"].value == pytest.approx(right, abs=0.02)
    assert found.records.value == pytest.approx(3900, abs=100)
    assert (set(found.groups), found.epsilon <= 4.0) == ({"F", "M"}, True)
    with pytest.raises(TooFewClientsError):
        evaluate(fit, hospitals[:3], **terms)
    fit = MODELS["softmax"].fit(HOSPITALS)
    accuracy = evaluate(fit, hospitals, **terms).figures["accuracy"].value
    assert accuracy == pytest.approx(fit.score(table), abs=0.02)
    with pytest.raises(ValueError, match="classifier"):
        evaluate(MODELS["linear"].fit(HOSPITALS), hospitals, **terms)


def test_the_first_sum_of_features_gives_their_mean_and_the_first_gradient():
    """Without noise: the rows' mean, and a step along the gradient at weights of 0."""
    model, state = MODELS["features"], State()
    records = model.read(TABLE)
    for _ in range(2):
        total = model.total(records, state.step, state.sent).to_numpy()
        state = model.advance(state, total / model.records)
    rows, mean = records.rows, records.rows[:, 1:].mean(axis=0)
    assert np.allclose(state.sent["centre"], mean, atol=1e-4)
    outcomes = records.targets == np.arange(3)
    centred = np.c_[rows[:, :1], (rows[:, 1:] - mean) / np.sqrt(1 - LENGTH**2 * mean @ mean)]
    step = state.kept["inverse"] @ centred.T @ (outcomes - 1 / 3)
    assert np.allclose(state.sent["weights"], 0.8 * 1.18 * 3 * step, atol=1e-2 * np.abs(step).max())


def test_what_cannot_be_told_is_not_told(fit_centrally):
    rng = np.random.default_rng(4)
    x = rng.uniform(-1, 1, 3000)
    table = {
        "x": x,
        "same": x,
        "constant": np.full(3000, 0.5),
        "rare": np.where(rng.random(3000) < 0.002, "yes", "no"),
        "sure": rng.uniform(-1, 1, 3000),
    }
    table["y"] = rng.random(3000) < 1 / (1 + np.exp(-table["sure"]))
    columns = [Number(name, -1, 1) for name in ("x", "same", "constant", "sure")]
    model = Logistic("y", [*columns, Category("rare", ["no", "yes"])], **{**TERMS, "records": 3000})
    fit = fit_centrally(model, table, rng)
    hidden = [one.name for one in fit.values() if one.value is None]
    assert set(hidden) >= {"x", "same", "constant", "rare: yes"}
    assert fit["sure"].value == pytest.approx(1.0, abs=5 * fit["sure"].error)
    assert "lost in noise" in fit["x"].hidden
    assert "not told" in str(fit)
    for outcome in (0, 1):  # one class only
        fit = fit_centrally(model, {**table, "y": np.full(3000, outcome)}, rng)
        assert all("too few events" in one.hidden for one in fit.values())
    nobody = {name: one[:0] for name, one in table.items()}
    assert all(one.value is None for one in fit_centrally(model, nobody, rng).values())


# The two ends


@pytest.mark.parametrize("name", MODELS)
def test_a_fit_can_be_stopped_kept_and_resumed(name, tmp_path):
    """A server that restarts from arrays, and another end that knows the spec alone."""
    model = MODELS[name]
    other = model_from_spec(model.spec)
    assert other == model
    assert (other.spec, other.name) == (model.spec, model.name)
    outcomes = []
    for is_kept in (False, True):
        state = State()
        rng = np.random.default_rng(2)
        while state.step < model.method.messages:
            if is_kept:
                np.savez(tmp_path / "state.npz", **state.arrays())
                state = State.from_arrays(dict(np.load(tmp_path / "state.npz")))
            total = other.total(other.read(TABLE), state.step, state.sent).to_numpy()
            noise = rng.normal(0.0, model.noise_of(state.step), len(total))
            state = model.advance(state, (total + noise) / model.records)
        outcomes.append(model.finish(state))
    assert (outcomes[0].weights == outcomes[1].weights).all()
    fit = outcomes[1]
    fit.save(tmp_path / "fit.json")
    again = Fit.load(tmp_path / "fit.json")
    assert str(again) == str(fit)
    assert (again.predict(HOSPITALS[0]) == fit.predict(HOSPITALS[0])).all()
    assert json.loads((tmp_path / "fit.json").read_text())["model"]["model"] == model.word
    for text in ("", "[]", "{}", '{"format": "jopeq-fit-1"}'):
        (tmp_path / "fit.json").write_text(text)
        with pytest.raises(ValueError, match="no fit"):
            Fit.load(tmp_path / "fit.json")
    with pytest.raises(ValueError, match="sums"):
        model.finish(State())


def test_a_new_cohort_is_averaged_anew():
    """Other hospitals have other optima: their sums must not be averaged."""
    model, state, counted = MODELS["logistic"], State(), []
    for table in [HOSPITALS[0]] * 5 + [HOSPITALS[1]] * 3:
        total = model.total(model.read(table), state.step, state.sent).to_numpy()
        is_same = state.step != 5
        state = model.advance(state, total / model.records, clients=3, is_same=is_same)
        counted.append(float(state.kept["count"]))
    assert counted == [1, 1, 1, 1, 2, 1, 2, 3]
    truth, usual = converge(
        np.c_[np.ones(3000), HOSPITALS[1]["age"] - 55, HOSPITALS[1]["sex"] == "M"],
        HOSPITALS[1]["death"],
        binomial,
    )
    fit = model.finish(state)
    assert np.allclose([one.value for one in fit.values()], truth, atol=0.02 * usual)


def test_a_total_that_is_no_sum_is_refused():
    model = MODELS["linear"]
    dimension = model.method.dimension(0)
    with pytest.raises(PayloadError) as caught:
        model.advance(State(), np.full(dimension, 1e6))
    assert caught.value.code == "total"
    for wrong in (np.zeros(3), np.full(dimension, math.nan)):
        with pytest.raises(ValueError, match="decoded"):
            model.advance(State(), wrong)


def test_hospitals_refuse_numbers_that_are_not_the_models():
    model = MODELS["softmax"]
    records = model.read(HOSPITALS[0])
    fine = {"weights": np.zeros((3, 3)), "centre": np.zeros(0)}
    model.total(records, 1, fine)
    wrong = ({}, {**fine, "weights": np.zeros((3, 2))}, {**fine, "more": np.zeros(1)},
             {**fine, "weights": np.full((3, 3), math.inf)})  # fmt: skip
    for sent in wrong:
        with pytest.raises(ValueError, match="sent"):
            model.total(records, 1, sent)
    with pytest.raises(ValueError, match="step"):
        model.total(records, 9, fine)


# Tables


def test_bad_tables_are_clear_inside_and_nothing_outside(tmp_path):
    model = MODELS["logistic"]
    with pytest.raises(DataError, match="'sex'"):
        model.fit([{"age": [3], "death": [1]}] * 4)
    with pytest.raises(TooFewClientsError):
        model.fit(HOSPITALS[:2])
    told = []
    for table in (
        {"age": [3, 4], "sex": ["F"], "death": [1, 0]},
        {"age": [3], "death": [1]},
        {"age": [[1, 2]], "sex": ["F"], "death": [1]},
        str(tmp_path / "none.csv"),
        {"age": ["old"], "sex": ["F"], "death": [1]},
    ):
        with pytest.raises(DataError):
            model.read(table)
        records = model.read(table, tell=told.append, pad=True)
        assert len(records.rows) == 12_000
        assert not records.rows.any()
        assert not model.total(records, 0, {}).values.any()
    assert len(told) >= 5
    features = MODELS["features"]
    with pytest.raises(DataError, match="6 features"):
        features.read({"x": np.zeros((2, 5)), "group": ["low", "high"]})
    with pytest.raises(DataError, match="most_records"):
        Logistic("death", COLUMNS, most_records=5, **TERMS).read(HOSPITALS[0])


def test_missing_values_have_a_level_or_leave_the_record_out():
    table = {"age": [30, None, 55, 60], "sex": ["F", "M", None, "x"], "death": [1, 0, 1, None]}
    strict = MODELS["logistic"].read(table)
    assert strict.rows.any(axis=1).tolist() == [True, False, False, False]
    columns = [Number("age", 20, 90, missing=True), Category("sex", ["F", "M"], missing=True)]
    model = Logistic("death", columns, **TERMS)
    assert model.design.names[1:] == ("age", "age: missing", "sex: M", "sex: missing")
    rows = model.read(table).rows * math.sqrt(3)
    assert np.allclose(rows[1], [1, 0, 1, -1, 0])
    assert np.allclose(rows[2], [1, 0, 0, 0, 1])
    corners = simplex(7)
    assert np.allclose(corners @ corners.T, (7 * np.eye(7) - 1) / 6)
    assert rows[3].any() == 0  # its outcome is missing
    shapes = Logistic("death", columns, additive=True, goal="prediction", **TERMS)
    assert abs(shapes.read(table).rows[0, -2]) < 0.5 / math.sqrt(2)
    assert shapes.design.names[1] == "age: [20, 24.375)"
    assert len(shapes.design.names) == 1 + 16 + 2


def test_long_rows_of_features_are_scaled_down_each_alone():
    model = Softmax("y", [Features("f", 2)], classes=[0, 1], **TERMS)
    rows = [[3, 4], [0.3, 0.4], [1e90, 0], [math.nan, 1], [1, 2, 3], "x"]
    found = model.read({"f": rows, "y": [0, 1] * 3}, tell=lambda error: None).rows * LENGTH
    expected = [[0.6, 0.8], [0.3, 0.4], [1, 0], [0, 0], [0, 0], [0, 0]]
    np.testing.assert_allclose(found[:, 1:3], expected, atol=1e-12)


# Around a fit


def test_plans_say_what_to_expect():
    few = {**TERMS, "epsilon": 1.0, "records": 4000}
    columns = [Number(f"x{i}", 0, 1) for i in range(8)]
    plan = Logistic("y", columns, **few).plan()
    assert plan.messages == 8
    assert 1.2 < plan.standard_error / plan.without_privacy < 1.6  # as measured
    assert plan.verdict == "enough patients"
    assert 0.98 < plan.epsilon <= 1.0
    wide = Logistic("y", columns, **{**few, "records": 1800}).plan()
    assert "wide" in wide.verdict
    assert "noise" in Logistic("y", columns, **{**few, "records": 300}).plan().verdict
    assert "noise" in Logistic("y", columns, additive=True, **few).plan().verdict
    head = MODELS["features"].plan()
    assert head.standard_error is None
    assert head.entries == (21, 28, *[21] * 5)  # means, moments, gradients
    assert head.bytes_up == sum(
        -(-n * b // 8) for n, b in zip(head.entries, head.bits, strict=True)
    )
    assert "verdict" in str(head)
    assert "standard error" in str(plan)


def test_pictures(fit_centrally):
    pytest.importorskip("matplotlib")
    for name in ("logistic", "shapes"):
        figure = fit_centrally(MODELS[name], TABLE, np.random.default_rng(1)).plot()
        assert len(figure.axes) == (1 if name == "logistic" else 2)
    with pytest.raises(ValueError, match="plot"):
        fit_centrally(MODELS["features"], TABLE, np.random.default_rng(1)).plot()


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_elsewhere(fit_centrally):
    """scikit-learn's and PyTorch's predictions are the fit's."""
    pytest.importorskip("sklearn")
    rng, x = np.random.default_rng(1), np.c_[TABLE["age"], TABLE["sex"] == "M"]
    fit = fit_centrally(MODELS["logistic"], TABLE, rng)
    assert np.allclose(fit.to_sklearn().predict_proba(x), fit.predict_proba(TABLE))
    fit = fit_centrally(MODELS["linear"], TABLE, rng)
    assert np.allclose(fit.to_sklearn().predict(x), fit.predict(TABLE))
    torch = pytest.importorskip("torch")
    fit = fit_centrally(MODELS["features"], TABLE, rng)
    with pytest.raises(ValueError, match="to_sklearn"):
        fit.to_sklearn()
    logits = fit.to_torch()(torch.tensor(TABLE["x"], dtype=torch.float32))
    assert np.allclose(torch.softmax(logits, 1).numpy(), fit.predict_proba(TABLE), atol=1e-4)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Number("age", 100, 18), "lower"),
        (lambda: Logistic("y", [Category("sex", ["F"])], **TERMS), "levels"),
        (lambda: Category("sex", "FM"), "levels"),
        (lambda: Bins("age", 0, 1, count=1), "count"),
        (lambda: Features("x", 0), "size"),
        (lambda: Logistic("y", [], **TERMS), "columns"),
        (lambda: Logistic("y", ["age"], **TERMS), "columns"),
        (lambda: Logistic("age", COLUMNS, **TERMS), "outcome"),
        (lambda: Logistic("y", COLUMNS * 2, **TERMS), "different names"),
        (lambda: Logistic("y", COLUMNS, goal="both", **TERMS), "goal"),
        (lambda: Logistic("y", COLUMNS, messages=2, **TERMS), "messages"),
        (lambda: Logistic("y", COLUMNS, classes=[0, 1, 2], **TERMS), "classes"),
        (lambda: Logistic("y", [Features("x", 3), Number("a", 0, 1)], **TERMS), "Features"),
        (lambda: Logistic("y", [Features("x", 3)], goal="inference", **TERMS), "Features"),
        (lambda: Softmax("y", COLUMNS, classes=[1, 1.0], **TERMS), "classes"),
        (lambda: Softmax("y", COLUMNS, classes="ab", goal="inference", **TERMS), "goal"),
        (lambda: Linear("y", COLUMNS, **TERMS), "bounds"),
        (lambda: Linear("y", COLUMNS, bounds=(0, 1), messages=3, **TERMS), "messages"),
        (lambda: Poisson("y", COLUMNS, **TERMS), "most"),
        (lambda: Poisson("y", [Features("x", 3)], most=9, **TERMS), "Features"),
        (lambda: Hazard("t", COLUMNS, event="e", cuts=(0,), **TERMS), "cuts"),
        (lambda: Hazard("t", COLUMNS, event="t", cuts=(0, 1), **TERMS), "event"),
        (lambda: Hazard("t", COLUMNS, event="", cuts=(0, 1), **TERMS), "event"),
        (lambda: Logistic("y", COLUMNS, **{**TERMS, "threshold": 1}), "threshold"),
        (lambda: model_from_spec('{"model":"logistic"}'), "spec"),
        (lambda: parse_column("number age 18"), "column"),
        (lambda: parse_column("number age 18 100 missing=perhaps"), "column"),
        (lambda: parse_column("age 18 100"), "column"),
    ],
)
def test_wrong_terms_are_named(make, told):
    with pytest.raises(ValueError, match=told):
        make()
