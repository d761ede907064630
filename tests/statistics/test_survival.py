"""Survival: cells, curves, bands and the log-rank test."""

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from jopeq.statistics import Category, Histogram, Survey, Survival, parse_question
from jopeq.statistics.parts import running_code
from jopeq.statistics.questions import Total

EDGES = tuple(range(11))
ASKED = Survival("time", "event", EDGES, by=Category("arm", ("A", "B")))
TERMS = {"epsilon": 1.0, "clients": 10, "threshold": 8}


def patients(count, rng, ratio=1.0, rate=0.12):
    """Exponential times, B at ``ratio`` times the hazard; censored from 2 to 12."""
    arm = rng.integers(0, 2, count)
    time, end = rng.exponential(1 / (rate * ratio**arm)), rng.uniform(2, 12, count)
    event = (time <= end).astype(float)
    return {"time": np.minimum(time, end), "event": event, "arm": np.array(["A", "B"])[arm]}


def without_noise(survey, table):
    answers = survey.answers(survey.rows(table).sum(axis=0) / survey.records)
    return answers["time"][survey.questions[0].name]


number = st.none() | st.floats(allow_infinity=True) | st.sampled_from([0, 1, 2, 10, -3, True])


@given(records=st.lists(st.tuples(number, number, st.sampled_from(["A", "B", "C", None, ""]))))
def test_a_row_is_a_function_of_its_record_and_no_row_is_clipped(records):
    survey = Survey([ASKED], **TERMS)

    def rows_of(some):
        columns = zip(*some, strict=True)
        return survey.rows(dict(zip(("time", "event", "arm"), map(list, columns), strict=True)))

    for one, row in zip(records, rows_of(records) if records else (), strict=True):
        np.testing.assert_array_equal(rows_of([one])[0], row)
        assert np.linalg.norm(row) <= 1.0 + 1e-12
        time, event, arm = one
        is_told = arm in ("A", "B") and event in (0, 1) and time is not None and time == time
        assert (row[-1] == 0.0) == is_told  # else it is missing, and nothing else


@pytest.mark.parametrize("count", [1, 2, 7, 64])
def test_the_code_adds_up_when_it_is_applied_twice(count):
    code, inverse = running_code(count)
    np.testing.assert_allclose(code @ code, np.tril(np.ones((count, count))), atol=1e-12)
    np.testing.assert_allclose(code @ inverse, np.eye(count), atol=1e-12)
    assert np.linalg.norm(code, axis=0).max() == np.linalg.norm(code[:, 0])


def test_without_noise_curves_and_test_are_those_of_the_life_table():
    rng = np.random.default_rng(1)
    table = patients(3000, rng, ratio=1.3)
    table["event"][:30], table["arm"][30:50] = math.nan, "C"
    answer = without_noise(Survey([ASKED], **TERMS), table)
    tables = []
    for curve, arm in zip(answer.curves, "AB", strict=True):
        there = (table["arm"] == arm) & ~np.isnan(table["event"])
        times, events = table["time"][there], table["event"][there] == 1
        survived, rows = 1.0, []
        for low, high in itertools.pairwise(EDGES):
            inside = (times > low) & (times <= high)
            died, lost = (inside & events).sum(), (inside & ~events).sum()
            at_risk = (times > low).sum() - lost / 2
            survived *= 1 - died / at_risk
            rows.append((survived, at_risk, died))
        tables.append(np.array(rows).T)
        np.testing.assert_allclose(curve.survival[1:], tables[-1][0], rtol=1e-6)
        np.testing.assert_allclose(curve.at_risk, [(times > low).sum() for low in EDGES], atol=1e-3)
        np.testing.assert_allclose(curve.events[1:], np.cumsum(tables[-1][2]), atol=1e-3)
        assert curve.median.lower < math.log(2) / 0.12 / 1.3 ** (arm == "B") < curve.median.upper
        mean = np.trapezoid(np.append(1.0, tables[-1][0]), EDGES)
        assert curve.mean.value == pytest.approx(mean)
    (_, n, d), (_, m, e) = tables
    events, there = d + e, n + m
    score = (d - events * n / there).sum()
    variance = (events * n * m / there**2 * (there - events) / (there - 1)).sum()
    part, survey = ASKED.parts[0], Survey([ASKED], **TERMS)
    cells = survey.rows(table).sum(axis=0)[1:] / (survey.weights[part] * part.factors)
    exact = ASKED.answer({part: Total(cells, np.full(part.size, 1e-9))}, True)
    assert exact.log_rank.statistic == pytest.approx(score**2 / variance)
    assert exact.log_rank.p == pytest.approx(chi2.sf(score**2 / variance, 1))
    assert exact.log_rank.p < answer.log_rank.p < 1e-3  # as the noise is in the variance
    assert json.loads(json.dumps(answer.as_dict()))["curves"][1]["group"] == "B"


def trials(count, records, epsilon, *, ratio=1.0, noise=True):
    """Answers of many surveys: the cells of patients, and the Gaussian noise of the plan."""
    survey = Survey([ASKED], **(TERMS | {"epsilon": epsilon}))
    part, rng = ASKED.parts[0], np.random.default_rng(11)
    error = survey.records * math.sqrt(survey.sum.plan(survey.dimension).error / survey.dimension)
    error = error / survey.weights[part] if noise else 1e-6
    for _ in range(count):
        rows, table = np.zeros((records, part.size)), patients(records, rng, ratio)
        part.fill(rows, {key: table[key[0]] for key in part.columns})
        values = rows.sum(axis=0) + rng.normal(0, error, part.size)
        yield ASKED.answer({part: Total(values, np.full(part.size, error))}, True)


def test_bands_cover_and_the_test_keeps_its_level():
    """400 surveys of 1,000 patients: each share within five standard errors of what it claims."""
    found = list(trials(400, 1000, 0.5))
    true = np.exp(-0.12 * np.array(EDGES))
    covered = [
        (curve.lower[1:6] <= true[1:6]) & (true[1:6] <= curve.upper[1:6])
        for answer in found
        for curve in answer.curves
    ]
    np.testing.assert_allclose(np.mean(covered, axis=0), 0.95, atol=5 * 0.0077)
    assert np.mean([answer.log_rank.p < 0.05 for answer in found]) == pytest.approx(0.05, abs=0.055)
    # in the plain variance, without that of the noise, it would be 0.2 and more
    powers = [
        np.mean([answer.log_rank.p < 0.05 for answer in trials(100, 1000, 0.5, ratio=1.5)]),
        np.mean([a.log_rank.p < 0.05 for a in trials(100, 1000, 0.5, ratio=1.5, noise=False)]),
    ]
    assert powers[0] > 0.65
    assert powers[1] > 0.95


def test_real_shares_tell_what_the_noise_says(tmp_path):
    rng = np.random.default_rng(4)
    table = patients(4000, rng, ratio=1.6)
    survey = Survey([ASKED, Histogram("time", range(0, 13, 4))], **TERMS)
    hospitals = [{name: column[one::10] for name, column in table.items()} for one in range(10)]
    answers = survey.ask(hospitals)
    answer, true = answers["time"]["survival by arm"], without_noise(survey, table)
    for curve, exact in zip(answer.curves, true.curves, strict=True):
        np.testing.assert_array_less(
            np.abs(curve.survival - exact.survival), 6 * curve.error + 1e-9
        )
    assert answer.log_rank.p < 1e-6
    shown = str(answers)
    assert max(map(len, shown.splitlines())) <= 80
    assert "log-rank test" in shown
    assert "at risk" in _texts(answer.plot())
    answers.plot().savefig(tmp_path / "answers.png")


def _texts(figure):
    return [text.get_text() for panel in figure.axes for text in panel.texts]


@given(seed=st.integers(0, 2**32), scale=st.floats(1e-6, 1e-2), count=st.integers(0, 4000))
def test_answers_are_consistent_whatever_the_noise(seed, scale, count):
    survey, rng = Survey([ASKED], **TERMS, minimum=0), np.random.default_rng(seed)
    mean = rng.normal(0, scale, survey.dimension)
    mean += survey.rows(patients(count, rng)).sum(axis=0) / survey.records
    answer = survey.answers(mean)["time"]["survival by arm"]
    for curve in answer.curves:
        assert (curve.lower >= 0).all()
        assert (curve.lower <= curve.survival).all()
        assert (curve.survival <= curve.upper).all()
        assert (curve.upper <= 1).all()
        for falling in (curve.survival, curve.lower, curve.upper, curve.at_risk, -curve.events):
            assert (np.diff(falling) <= 0).all()
        assert curve.mean.lower <= curve.mean.value <= curve.mean.upper
    assert answer.log_rank is None or 0 <= answer.log_rank.p <= 1
    assert json.dumps(answer.as_dict(), allow_nan=False)


def test_one_group_few_records_and_no_events():
    rng = np.random.default_rng(2)
    alone = Survival("time", "event", EDGES)
    answer = without_noise(Survey([alone], **TERMS), patients(3000, rng))
    assert (answer.log_rank, [curve.group for curve in answer.curves]) == (None, ["all"])
    assert answer.plot() is not None
    few = without_noise(Survey([ASKED], **TERMS), patients(60, rng))
    assert (few.value, few.curves, few.told) == (None, (), "")
    with pytest.raises(ValueError, match="too few records"):
        few.plot()
    nobody = {**patients(3000, rng), "event": np.zeros(3000)}
    answer = without_noise(Survey([ASKED], **TERMS), nobody)
    assert set(answer.value.values()) == {1.0}
    assert answer.log_rank.p > 0.9


def test_specs_and_words_make_the_same_question():
    survey = Survey([ASKED, Survival("time", "event", (0, 5.5, 10))], **TERMS)
    assert Survey.from_spec(survey.spec) == survey
    assert survey.asked == (("time", "numbers"), ("event", "numbers"), ("arm", "words"))
    assert parse_question("time: survival event 0 10 bins=10 by=arm:A,B") == ASKED
    assert parse_question("time: survival event 0 5.5 10") == survey.questions[1]
