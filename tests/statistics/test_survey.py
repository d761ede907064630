"""Private statistics: rows, answers, what they cost, what they refuse."""

import math
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jopeq
from jopeq.errors import BudgetSpentError, DataError, TooFewClientsError
from jopeq.random.streams import PrivateStream
from jopeq.statistics import (
    Category,
    Correlation,
    Count,
    Histogram,
    Mean,
    Proportions,
    Quantiles,
    Survey,
    Survival,
    Variance,
    parse_question,
)

EDGES = tuple(np.linspace(0, 120, 21).tolist())
TERMS = {"epsilon": 0.5, "delta": 1e-5, "clients": 10, "threshold": 3}
ALL = (
    Count(),
    Count("sex"),
    Mean("age", 0, 120),
    Variance("age", 0, 120),
    Histogram("age", EDGES),
    Quantiles("age", 0, 120),
    Proportions("sex", ("F", "M")),
    Correlation("age", "pressure", (0, 120), (60, 220)),
)


@pytest.fixture(scope="module")
def patients():
    rng = np.random.default_rng(3)
    age = rng.normal(58, 17, 4000)
    pressure = 100 + 0.6 * age + rng.normal(0, 12, 4000)
    sex = rng.choice(["F", "M", "X"], 4000, p=[0.5, 0.45, 0.05])
    return {"age": np.clip(age, 1, 119), "pressure": pressure, "sex": sex}


@pytest.fixture(scope="module")
def survey():
    return Survey(ALL, **TERMS)


def hospitals_of(table):
    return [{name: column[start::10] for name, column in table.items()} for start in range(10)]


def answers_without_noise(survey, table):
    return survey.answers(survey.rows(table).sum(axis=0) / survey.records)


# Rows

number = st.none() | st.floats(allow_infinity=True) | st.integers(-300, 300)
record = st.tuples(number, number, st.sampled_from(["F", "M", "", None, "x", 3.0, math.nan]))


@given(records=st.lists(record, min_size=1, max_size=6))
def test_a_row_is_a_function_of_its_record_and_no_row_is_clipped(survey, records):
    def rows_of(some):
        columns = zip(*some, strict=True)
        return survey.rows(dict(zip(("age", "pressure", "sex"), map(list, columns), strict=True)))

    rows = rows_of(records)
    assert rows.shape == (len(records), survey.dimension)
    assert np.linalg.norm(rows, axis=1).max() <= 1.0 + 1e-12
    np.testing.assert_array_equal(rows, np.concatenate([rows_of([one]) for one in records]))


def test_weights_follow_the_rule_and_use_the_whole_clip():
    asked = (Mean("a", 0, 1), Proportions("b", ("x", "y")), Variance("c", -1, 1, importance=4.0))
    survey = Survey(asked, **TERMS)
    bound = sum((weight * part.norm) ** 2 for part, weight in survey.weights.items())
    assert bound == pytest.approx(1.0)
    corner = survey.rows({"a": [1.0], "b": ["x"], "c": [-1.0]})
    assert np.linalg.norm(corner) == pytest.approx(1.0)  # the bound is reached
    mean, _, value, square = list(survey.weights.values())[1:]
    assert (value / mean) ** 2 == pytest.approx(2.0)  # √4 of importance, same norm
    assert (square / value) ** 2 == pytest.approx(2.0)  # half the norm


def test_tables_of_all_kinds_give_the_same_rows(survey, tmp_path):
    pandas = pytest.importorskip("pandas")
    age, pressure = [30.0, math.nan, 200.0], [120, 130, 140]
    plain = {"age": age, "pressure": pressure, "sex": ["F", None, "M"]}
    structured = np.array(
        list(zip(age, pressure, ["F", "", "M"], strict=True)),
        dtype=[("age", "f4"), ("pressure", "i2"), ("sex", "U1")],
    )
    frame = pandas.DataFrame(plain)
    frame.to_csv(tmp_path / "table.csv", index=False)
    masked = {**plain, "age": np.ma.masked_invalid(age)}
    whole = frame.astype({"pressure": "Int64", "sex": "category"})
    found = survey.rows(plain)
    other = Other(columns=list(plain), frame=frame)
    for table in (structured, frame, masked, whole, other, tmp_path / "table.csv"):
        np.testing.assert_array_equal(survey.rows(table), found)


class Other(types.SimpleNamespace):
    """A frame of another library, such as polars."""

    def __getitem__(self, name):
        return types.SimpleNamespace(to_numpy=self.frame[name].to_numpy)

    def __len__(self):
        return len(self.frame)


# Answers


def test_without_noise_answers_are_the_statistics(survey, patients):
    table = {name: column.copy() for name, column in patients.items()}
    table["age"][::10] = math.nan
    table["sex"][::8] = ""
    answers = answers_without_noise(survey, table)
    age, pressure = table["age"], table["pressure"]
    there = ~np.isnan(age)
    found = answers["age"]
    assert answers["*"]["count"].value == pytest.approx(4000)
    assert answers["sex"]["count"].value == pytest.approx(3500)
    assert found["mean"].value == pytest.approx(np.mean(age[there]))
    assert found["variance"].value == pytest.approx(np.var(age[there]))
    counts = [*np.histogram(age[there], EDGES)[0], 400]
    assert list(found["histogram"].value.values()) == pytest.approx(counts, abs=1e-6)
    quartiles = np.quantile(age[there], [0.25, 0.5, 0.75])
    assert list(found["quartiles"].value.values()) == pytest.approx(quartiles, abs=120 / 128)
    correlation = np.corrcoef(age[there], pressure[there])[0, 1]
    assert found["correlation with pressure"].value == pytest.approx(correlation)
    shares = [np.mean(table["sex"] == one) for one in ("F", "M", "X", "")]
    assert list(answers["sex"]["proportions"].value.values()) == pytest.approx(shares)


@given(seed=st.integers(0, 2**32), scale=st.floats(0.0, 1e-3))
def test_answers_are_consistent_whatever_the_noise(survey, seed, scale):
    noise = np.random.default_rng(seed).normal(0, scale, survey.dimension)
    noise[0] = abs(noise[0]) + 3e-4
    answers = survey.answers(noise)
    for found in answers.values():
        for name, answer in found.items():
            values = [value for _, value, _ in answer.lines]
            assert all(error >= 0.0 for _, _, error in answer.lines)
            if not values:
                continue
            if name == "histogram":
                assert sum(values) == pytest.approx(answers["*"]["count"].value)
            if name == "proportions":
                assert sum(values) == pytest.approx(1.0)
            if name == "quartiles":
                assert values == sorted(values)
                assert values[0] >= 0
                assert values[-1] <= 120
            if name.startswith("correlation"):
                assert -1 <= values[0] <= 1
            else:
                assert min(values) >= 0.0
    assert max(map(len, str(answers).splitlines())) <= 80


def test_below_the_minimum_nothing_is_said(survey, patients):
    few = {name: column[:60] for name, column in patients.items()}
    answers = answers_without_noise(survey, few)
    assert answers.minimum > 60  # five standard errors of the count
    assert {answer.value for found in answers.values() for answer in found.values()} == {None}
    assert "too few records" in str(answers)
    lacking = {**patients, "age": np.full(4000, math.nan)}
    answers = answers_without_noise(survey, lacking)
    assert answers["age"]["mean"].value is None
    assert answers["*"]["count"].value == pytest.approx(4000)
    known = Survey(ALL, **TERMS, complete=True)
    middle = answers_without_noise(known, lacking)["age"]["mean"]
    assert middle.value == pytest.approx(60)  # as it was told that none is missing


# What it costs


def test_what_ten_hospitals_get_for_half_an_epsilon(patients):
    """Twenty runs by real shares, the errors that they claim, and a trusted place beside them."""
    asked = (Mean("age", 0, 120), Quantiles("age", 0, 120), Histogram("age", EDGES))
    survey = Survey(asked, **TERMS)
    scheme, size = survey.sum, survey.dimension
    tables, age = hospitals_of(patients), patients["age"]
    counts, quartiles = np.histogram(age, EDGES)[0], np.quantile(age, [0.25, 0.5, 0.75])
    good, scores = 0, []
    for run in range(20):
        seed = run.to_bytes(32, "big")
        total = 0
        for hospital, table in enumerate(tables):
            noise = PrivateStream.reproducible((20 * hospital + run + 1).to_bytes(32, "big"))
            share = scheme.encode(survey.total(table), seed=seed, noise=noise)
            total = total + share.astype(np.int64)
        answers = survey.answers(scheme.decode(total, seed=seed, dimension=size, clients=10))
        found = {name: answer.lines for name, answer in answers["age"].items()}
        ((_, mean, error),) = found["mean"]
        cells = np.array([value for _, value, _ in found["histogram"]])
        middles = np.array([value for _, value, _ in found["quartiles"]])
        spreads = np.array([error for *_, error in found["quartiles"]])
        good += (
            abs(mean - age.mean()) <= 0.02 * 120
            and np.abs(middles - quartiles).max() <= 0.03 * 120
            and np.abs(cells[:-1] - counts).max() <= 0.015 * 4000
        )
        scores.append(
            [
                (mean - age.mean()) / error,
                (answers["*"]["count"].value - 4000) / answers["*"]["count"].error,
                *((cells[5:12] - counts[5:12]) / found["histogram"][5][2]),
                *((middles - quartiles) / spreads),
            ]
        )
    assert good >= 19
    squares = np.square(scores)  # each about 1: a χ² of 20, whose mean has a spread of √(2/20)
    assert squares[:, :-3].mean() == pytest.approx(1.0, abs=5 * math.sqrt(2 / 180))
    assert squares[:, -3:].mean() < 1.0 + 5 * math.sqrt(2 / 20)  # quartiles hang together
    assert abs(np.mean(scores, axis=0)[:2]).max() < 5 / math.sqrt(20)
    plan = scheme.plan(size)
    assert 0.49 < plan.epsilon <= 0.5
    assert math.sqrt(plan.error / plan.central_error) <= 1.1


def test_ledgers_are_charged_before_any_value_is_read(survey, patients):
    ledgers = [jopeq.Ledger(2.0, 1e-5) for _ in range(3)]
    tables = [{**patients, "age": ["old"] * len(patients["age"])}, patients, patients]
    with pytest.raises(DataError):
        survey.ask(tables, ledgers=ledgers)
    assert [ledger.rounds for ledger in ledgers] == [1, 1, 1]


def test_a_ledger_composes_statistics_and_training(patients):
    survey = Survey(ALL, **{**TERMS, "epsilon": 0.2})
    training = jopeq.RecordSum(
        epsilon=0.8, clip=1.0, records=4000, sampling=1.0, rounds=5, clients=10, threshold=3
    )
    ledgers = [jopeq.Ledger(1.0, 1e-5) for _ in range(10)]
    tables = hospitals_of(patients)
    survey.ask(tables, ledgers=ledgers)
    assert ledgers[0].spent.epsilon == pytest.approx(0.2, rel=0.01)
    with pytest.raises(BudgetSpentError):
        survey.ask(tables, ledgers=ledgers)
    for _ in range(5):
        ledgers[0].charge(training, 31, run="training")
    assert 0.8 < ledgers[0].spent.epsilon < 0.9  # and not 1
    again = Survey.from_spec(survey.spec)
    assert (again, again.sum.spec) == (survey, survey.sum.spec)


# Refusals


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Mean("age", 120, 0), "lower"),
        (lambda: Variance("age", 0, math.nan), "upper"),
        (lambda: Histogram("age", (0, 20, 10)), "edges"),
        (lambda: Histogram("age", (0,)), "edges"),
        (lambda: Quantiles("age", 0, 1, at=(0.5, 0.25)), "at"),
        (lambda: Quantiles("age", 0, 1, bins=100), "bins"),
        (lambda: Proportions("sex", "FM"), "categories"),
        (lambda: Proportions("sex", ("F", "F")), "categories"),
        (lambda: Correlation("a", "b", (0, 1), (1, 0)), "other_bounds"),
        (lambda: Correlation("a", "a", (0, 1), (0, 1)), "other"),
        (lambda: Mean("age", 0, 1, importance=0), "importance"),
        (lambda: Survey((), **TERMS), "questions"),
        (lambda: Survey((ALL[2], Mean("age", 0, 9)), **TERMS), "questions"),
        (lambda: Survey(ALL, **TERMS, minimum=-1), "minimum"),
        (lambda: Survey(ALL, **{**TERMS, "threshold": 11}), "threshold"),
        (lambda: Survey.from_spec("{}"), "spec"),
        (lambda: Survival("t", "e", (0, 2, 1)), "edges"),
        (lambda: Survival("t", "t", (0, 1)), "different columns"),
        (lambda: Survival("t", "e", (0, 1), by="arm"), "Category"),
        (lambda: Category("arm", ("A", "A")), "levels"),
        (lambda: Category("arm", "AB"), "levels"),
        (lambda: parse_question("t: survival"), "survival EVENT"),
        (lambda: parse_question("t: survival e 0 1 by=arm"), "levels"),
        (lambda: parse_question("t: survival e 0 1 bins=0"), "edges"),
        (lambda: parse_question("age: histogram 0 1 bins=0"), "edges"),
        (lambda: parse_question("age: mode 0 1"), "ask"),
        (lambda: parse_question("age: mean 0"), "ask"),
        (lambda: parse_question("age: mean low high"), "ask"),
        (lambda: parse_question("mean 0 120"), "ask"),
    ],
)
def test_impossible_questions_are_refused(make, name):
    with pytest.raises(ValueError, match=rf"^.*{name}\b"):
        make()


def test_a_class_of_ones_own_does_not_answer_for_another():
    class Own(Mean):
        pass

    again = Survey.from_spec(Survey([Own("age", 0, 120)], **TERMS).spec)
    assert type(again.questions[0]) is Mean


def test_questions_from_words():
    assert parse_question("blood pressure: mean 50 200") == Mean("blood pressure", 50, 200)
    assert parse_question("count") == Count()
    assert parse_question("a: quantiles 0 1 at=0.1,0.9 bins=64") == Quantiles(
        "a", 0, 1, at=(0.1, 0.9), bins=64
    )
    assert parse_question("a: correlation 0 1 b -1 1") == Correlation("a", "b", (0, 1), (-1, 1))
    assert parse_question("s: proportions 'very good' bad") == Proportions(
        "s", ("very good", "bad")
    )


def test_bad_tables_are_refused_and_no_value_is_told(survey, patients):
    tables = hospitals_of(patients)
    ledgers = [jopeq.Ledger(1.0, 1e-5) for _ in range(10)]
    text = {**tables[9], "age": ["58", *tables[9]["age"][1:]]}
    lacking = {"age": tables[9]["age"]}
    uneven = {**tables[9], "age": tables[9]["age"][1:]}
    for table, code in ((lacking, "column"), (np.zeros((4, 3)), "table")):
        with pytest.raises(DataError) as error:
            survey.ask([*tables[:9], table], ledgers=ledgers)
        assert error.value.code == code
        assert {ledger.rounds for ledger in ledgers} == {0}
    for table, code in ((text, "text"), (uneven, "table")):
        with pytest.raises(DataError) as error:
            survey.ask([*tables[:9], table])
        assert error.value.code == code
        assert "58" not in str(error.value)
    with pytest.raises(TooFewClientsError):
        survey.ask(tables[:2], ledgers=ledgers[:2])
    few = Survey(ALL, **TERMS, records=10)
    with pytest.raises(DataError, match=r"^records="):
        few.total(tables[0])


@pytest.mark.parametrize("digits", [400, 5000])
@pytest.mark.parametrize("column", ["age", "sex"])
def test_a_record_moves_a_total_by_no_more_than_its_row_whatever_it_holds(survey, column, digits):
    table = {"age": [50.0] * 9, "pressure": [120.0] * 9, "sex": ["F"] * 9}
    longer = {name: [*held, held[0]] for name, held in table.items()}
    longer[column][-1] = -(10**digits)
    without, with_it = (survey.total(one, tell=str).to_numpy() for one in (table, longer))
    assert 0.0 < np.linalg.norm(with_it - without) <= 1.0


# Then train


def test_features_are_standardised_by_answers(survey, patients):
    torch = pytest.importorskip("torch")
    from jopeq.torch import Standardise

    answers = answers_without_noise(survey, patients)
    found = answers.standardise(patients)
    assert found.shape == (4000, 1)
    assert (found.mean(), found.std()) == pytest.approx((0.0, 1.0), abs=1e-6)
    odd = answers.standardise({"age": [500.0, math.nan]})
    np.testing.assert_array_equal(odd, answers.standardise({"age": [120.0, None]}))
    assert odd[1] == 0.0
    layer = Standardise(answers)
    np.testing.assert_allclose(layer(torch.tensor([[500.0], [math.nan]])), odd, rtol=1e-6)
    assert len(layer.state_dict()) == 4
    for columns in (["sex"], ["unheard"]):
        with pytest.raises(ValueError, match="columns"):
            answers.standardise(patients, columns)
