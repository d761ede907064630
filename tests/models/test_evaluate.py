"""Evaluations of fitted models."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from jopeq.errors import TooFewClientsError
from jopeq.models import Category, Linear, Logistic, Number, Softmax, evaluate

TERMS = {"epsilon": 4.0, "clients": 4, "threshold": 4, "records": 4000}
COLUMNS = [Number("age", 18, 100), Category("sex", ["F", "M"])]


def patients(count, seed):
    rng = np.random.default_rng(seed)
    age, sex = rng.uniform(18, 100, count), rng.choice(["F", "M"], count)
    died = rng.random(count) < 1 / (1 + np.exp(4 - 0.06 * age))
    return {"age": age, "sex": sex, "died": died.astype(int), "size": age // 30}


def hospitals(table, count=4):
    return [{name: one[start::count] for name, one in table.items()} for start in range(count)]


@pytest.fixture(scope="module")
def fit():
    return Logistic("died", COLUMNS, **TERMS).fit(hospitals(patients(4000, 1)))


def test_figures_are_those_of_the_predictions(fit):
    table = patients(4000, 2)
    table["age"][:100] = np.nan  # counts as nothing
    terms = {"epsilon": 4.0, "records": 4000, "threshold": 4, "cut": 0.4}
    found = evaluate(fit, hospitals(table), by=Category("sex", ["F", "M"]), **terms)
    chances, died = fit.predict_proba(table)[100:, 1], table["died"][100:]
    assert found.figures["AUC"].value == pytest.approx(roc_auc_score(died, chances), abs=0.02)
    right = np.mean((chances >= 0.4) == died)
    assert found.figures["accuracy"].value == pytest.approx(right, abs=0.02)
    assert found.records.value == pytest.approx(3900, abs=100)
    assert set(found.groups) == {"F", "M"}
    assert found.epsilon <= 4.0
    with pytest.raises(TooFewClientsError):
        evaluate(fit, hospitals(table)[:3], **terms)


def test_several_classes_and_what_is_no_classifier():
    table = patients(4000, 3)
    model = Softmax("size", COLUMNS, classes=[0, 1, 2, 3], **TERMS)
    fit = model.fit(hospitals(table))
    found = evaluate(fit, hospitals(table), epsilon=4.0, records=4000, threshold=4)
    assert found.figures["accuracy"].value == pytest.approx(fit.score(table), abs=0.02)
    line = Linear("size", COLUMNS, bounds=(0, 4), **TERMS).fit(hospitals(table))
    with pytest.raises(ValueError, match="classifiers"):
        evaluate(line, hospitals(table), epsilon=4.0, records=4000, threshold=4)
