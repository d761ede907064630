"""Surveys on Flower: query messages over the circles of training, without a network."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch.nn.functional import cross_entropy

import jopeq
from jopeq import Ledger
from jopeq.circle.circle import Kind
from jopeq.circle.circle_client import read_audit
from jopeq.flower import RoundFailedError, ask, record_client, survey_client
from jopeq.flower.guard import guard_app
from jopeq.flower.refusals import read_failure
from jopeq.flower.tasks import RECORD
from jopeq.statistics import Category, Mean, Proportions, Survey, Survival, Variance
from tests.flower.delivery import codes_of
from tests.flower.test_records import EXAMPLE, NODES, SCHEME, Hospitals, digits, fail, net

TERMS = {"epsilon": 1.0, "clients": 5, "threshold": 3, "records": 2000}
QUESTIONS = (Mean("age", 0, 120), Variance("age", 0, 120), Proportions("sex", ("F", "M")))
SURVEY = Survey(QUESTIONS, **TERMS)
POLICY = {"jopeq-max-epsilon": 8.0, "jopeq-max-delta": 1e-5, "jopeq-columns": "age, sex = text"}
RNG = np.random.default_rng(2)
TABLES = {
    n: {"age": RNG.normal(60, 15, 300), "sex": RNG.choice(["F", "M"], 300), "name": ["Smith"] * 300}
    for n in NODES
}


@pytest.fixture
def wards(flower, tmp_path, monkeypatch):
    """Makes five hospitals; ``read`` lists whose tables were read, ``totals`` what was encoded."""
    totals, encode = [], jopeq.RecordSum.encode
    monkeypatch.setattr(
        jopeq.RecordSum,
        "encode",
        lambda self, total, **k: (totals.append(total.to_numpy()), encode(self, total, **k))[1],
    )

    def make(surveys=None, node=POLICY, table=lambda n: TABLES[n], app=None):
        hospitals, read = Hospitals(flower, tmp_path, node=node), []
        for n in NODES:
            own = lambda context, n=n: (read.append(n), table(n))[1]  # noqa: E731
            hospitals.apps[n] = app or survey_client(own, surveys=surveys)

        def asked(survey=SURVEY, **options):
            given = {"trusted": hospitals.trusted, "deadline": 0.01, **options}
            return ask(hospitals.grid, survey, **given)

        return SimpleNamespace(hospitals=hospitals, ask=asked, read=read, totals=totals)

    return make


def test_one_app_answers_and_then_trains_from_one_ledger(wards, tmp_path):
    made = wards()
    hospitals, (inputs, labels) = made.hospitals, digits()
    for at, n in enumerate(NODES):
        own = slice(300 * at, 300 * at + 300)
        hospitals.apps[n] = record_client(
            SCHEME,
            model=net,
            loss=cross_entropy,
            example=EXAMPLE,
            load=lambda _, own=own: (inputs[own], labels[own]),
            load_table=lambda _, n=n: TABLES[n],
        )
    answers = made.ask()
    ages = np.concatenate([TABLES[n]["age"] for n in NODES])
    mean, share = answers["age"]["mean"], answers["sex"]["proportions"]
    assert abs(mean.value - np.clip(ages, 0, 120).mean()) < 6 * mean.error
    women = np.mean([TABLES[n]["sex"] == "F" for n in NODES])
    assert abs(share.value["F"] - women) < 6 * share.error["F"]
    assert hospitals.grid.kinds() == [Kind.ASK] * 5 + [Kind.ATTEMPT] * 5
    assert {message.metadata.message_type for message in hospitals.grid.sent} == {"query"}
    after = Ledger.load(tmp_path / "11.json").spent.epsilon
    assert 0.99 * answers.epsilon < after < 1.1 * answers.epsilon
    strategy = hospitals.strategy()
    strategy.start(hospitals.grid, num_rounds=2)
    both = Ledger.load(tmp_path / "11.json").spent.epsilon
    assert max(after, strategy.epsilon) < both < after + strategy.epsilon
    assert set(hospitals.shares().values()) == {3}
    audit = read_audit(tmp_path / "11.json.circle" / "audit.jsonl")
    assert [line["circle"] for line in audit] == [SURVEY.name, "", ""]
    asked = [run.about["asked"] for run in Ledger.load(tmp_path / "11.json").runs]
    assert asked == ["mean of age and variance of age and proportions of sex", "to train a model"]
    with pytest.raises(RoundFailedError) as error:
        made.ask()  # a ledger takes a survey once
    assert (error.value.code, codes_of(error)) == ("budget-spent", {"budget-spent"})
    other = Survey((Mean("age", 0, 110), *QUESTIONS[2:]), **{**TERMS, "epsilon": 0.5})
    assert made.ask(other, run="again").epsilon <= 0.5  # and others while there is budget
    assert set(hospitals.shares().values()) == {4}


REFUSED = {
    "ε": ({"epsilon": 8.5}, None, {}, "limits"),
    "δ": ({"delta": 1e-4}, None, {}, "limits"),
    "attempts": ({"rounds": 3}, None, {"jopeq-max-rounds": 2}, "limits"),
    "sampling": ({}, None, {"jopeq-max-sampling": 0.5}, "limits"),
    "unlisted column": ({"questions": [Mean("name", 0, 1)]}, None, {}, "limits"),
    "numbers of text": ({"questions": [Mean("sex", 0, 1)]}, None, {}, "limits"),
    "no bound": ({}, None, {"jopeq-max-epsilon": ""}, "settings"),
    "no columns": ({}, None, {"jopeq-columns": ""}, "settings"),
    "bad columns": ({}, None, {"jopeq-columns": "age=number"}, "settings"),
    "other survey": ({"epsilon": 0.5}, [SURVEY], {}, "settings"),
    "none at all": ({}, [], {}, "settings"),
    "colluding": ({"colluding": 0}, None, {}, "settings"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_hospital_refuses_before_it_reads_anything(wards, name):
    change, surveys, node, code = REFUSED[name]
    made = wards(surveys, {**POLICY, **node})
    given = {"questions": QUESTIONS, **TERMS, **change}
    with pytest.raises(RoundFailedError) as error:
        made.ask(Survey(given.pop("questions"), **given))
    assert codes_of(error) == {code}
    assert not made.read
    assert set(made.hospitals.shares().values()) == {0}


def test_agreed_surveys_need_no_bounds(wards):
    made = wards([SURVEY], {})
    assert made.ask().epsilon <= 1.0
    with pytest.raises(RoundFailedError) as error:
        made.ask(run="again")
    assert codes_of(error) == {"settings"}
    assert set(made.hospitals.shares().values()) == {1}


def test_survival_is_a_question_like_every_other(wards):
    """Two groups of 750, B with three times the hazard: the log-rank test sees it at ε = 1."""
    time = RNG.exponential(6.0, (5, 300)) / np.repeat((1.0, 3.0), 150)
    arm = np.repeat(("A", "B"), 150)
    tables = {
        n: {"time": np.minimum(one, 10.0), "event": (one < 10.0).astype(float), "arm": arm}
        for n, one in zip(NODES, time, strict=True)
    }
    asked = Survival("time", "event", range(11), by=Category("arm", ("A", "B")))
    survey = Survey([asked], **TERMS)
    node = {**POLICY, "jopeq-columns": "time, event, arm = text"}
    answer = wards(node=node, table=lambda n: tables[n]).ask(survey)["time"][asked.name]
    assert answer.log_rank.p < 1e-4
    first, second = (curve.survival[curve.times == 5.0].item() for curve in answer.curves)
    assert abs(first - math.exp(-5 / 6)) < 0.1  # some 0.02 of sampling and noise
    assert abs(second - math.exp(-5 / 2)) < 0.1


PLAIN = {"age": [50.0, 60.0, 70.0], "sex": ["F", "M", "M"]}
BAD = {
    "error": lambda _: fail(ValueError),
    "exit": lambda _: fail(SystemExit),
    "nothing": lambda _: None,
    "no table": lambda _: np.zeros((3, 2)),
    "no column": lambda _: {"age": PLAIN["age"]},
    "uneven": lambda _: {**PLAIN, "age": [50.0]},
}
ODD = {
    "text among numbers": lambda _: {**PLAIN, "age": [50.0, 60.0, "Mrs Smith"]},
    "all as text": lambda _: {**PLAIN, "age": np.array(["50", "60", "Mrs Smith"])},
    "a number is missing": lambda _: {**PLAIN, "age": np.array([50.0, 60.0, math.nan])},
    "beyond the bound": lambda _: {key: column * 800 for key, column in PLAIN.items()},
}


@pytest.mark.parametrize("name", [*BAD, *ODD])
def test_tables_decide_nothing_that_is_seen(wards, name, caplog):
    made = wards(table={**BAD, **ODD}[name])
    made.ask()
    assert set(made.hospitals.shares().values()) == {1}
    replies = made.hospitals.grid.sizes()
    assert len(replies) == 10  # five keys and five shares, each of one length
    assert len(set(replies[:5])) == len(set(replies[5:])) == 1
    assert len(made.totals) == 5
    if name in BAD:
        assert not np.any(made.totals)
        return
    whole = SURVEY.total(PLAIN).to_numpy()
    if name == "beyond the bound":
        np.testing.assert_allclose(made.totals, [800 * whole] * 5, rtol=1e-6)
        return
    lacking = SURVEY.total({**PLAIN, "age": [50.0, 60.0, None]}).to_numpy()
    np.testing.assert_array_equal(made.totals, [lacking] * 5)  # the other records are as they were
    assert ("not numbers" in caplog.text) == ("text" in name)


def test_who_is_away_costs_nothing_and_who_vanishes_an_attempt(wards):
    made = wards()
    made.hospitals.grid.lose((22, 1))
    made.ask()
    assert made.hospitals.shares() == {11: 1, 22: 0, 33: 1, 44: 1, 55: 1}
    made.hospitals.grid.lose((33, 2))
    with pytest.raises(RoundFailedError) as error:
        made.ask(run="once")
    assert error.value.reports[-1].missing == [33]
    made.hospitals.grid.lose((44, 2))
    twice = Survey(QUESTIONS, **TERMS, rounds=2)
    answers = made.ask(twice)
    count = answers["*"]["count"]
    assert abs(count.value - 1200) < 6 * count.error  # the four that are left
    assert made.hospitals.shares() == {11: 4, 22: 3, 33: 3, 44: 2, 55: 4}


def test_a_server_cannot_change_a_survey_on_its_way(wards, flower):
    made = wards()
    hospitals, app, seen = made.hospitals, made.hospitals.apps[11], []

    def hold(msg, ctxt):
        seen.append(flower.copied(msg))
        return app(msg, ctxt) if len(seen) == 1 else Message(RecordDict(), reply_to=msg)

    hospitals.apps[11] = hold
    with pytest.raises(RoundFailedError):
        made.ask()
    other = Survey((Mean("age", 9, 10), Variance("age", 9, 10), QUESTIONS[2]), **TERMS)
    assert other.dimension == SURVEY.dimension
    for change in ("survey", "content", "run", "no survey"):
        told = flower.copied(seen[1])
        if change == "content":
            told.content["more"] = ConfigRecord({"who": 1})
        else:
            key, value = {"survey": ("scheme", other.spec), "run": ("run", "2")}.get(
                change, ("scheme", "[]")
            )
            told.content[RECORD][key] = value
        code = read_failure(app(told, hospitals.contexts[11])).code
        assert code == ("settings" if change == "no survey" else "protocol")
    assert (made.read.count(11), hospitals.shares()[11]) == (0, 0)
    assert not app(flower.copied(seen[1]), hospitals.contexts[11]).has_error()
    assert (made.read.count(11), hospitals.shares()[11]) == (1, 1)
    # once
    assert read_failure(app(flower.copied(seen[1]), hospitals.contexts[11])).code == "protocol"


def test_the_guard_lets_shares_through_and_nothing_else(wards):
    made = wards()
    careless = ClientApp()

    @careless.query()
    def tell(msg, _):
        content = {"metrics": MetricRecord({"age": 71}), "arrays": ArrayRecord([np.ones(3)])}
        return Message(RecordDict(content), reply_to=msg)

    inner = dict(made.hospitals.apps)
    inner |= {22: careless, 33: ClientApp()}
    inner[44] = survey_client(lambda _: TABLES[44], surveys=[])  # it has agreed to none
    for n, app in inner.items():
        made.hospitals.apps[n] = guard_app(lambda app=app: app)
    made.ask()
    assert sorted(bool(total.any()) for total in made.totals) == [False, False, False, True, True]
    assert set(made.hospitals.shares().values()) == {1}
    assert all(list(content) == [RECORD] for content in made.hospitals.grid.contents)


def test_unsigned_surveys_are_bounded_by_what_is_left(wards):
    app = survey_client(lambda _: TABLES[11], unsigned=True)
    made = wards(node={**POLICY, "jopeq-identity": "", "jopeq-trusted": ""}, app=app)
    given = {"trusted": None, "unsigned": True}
    assert made.ask(**given).epsilon <= 1.0
    for context in made.hospitals.contexts.values():
        context.node_config["jopeq-max-epsilon"] = 1.5  # which one share alone exceeds
    with pytest.raises(RoundFailedError) as error:
        made.ask(**given, run="again")
    assert codes_of(error) == {"limits"}


def test_bad_settings(wards):
    made = wards()
    for name, options in (
        ("survey", {"survey": SCHEME}),
        ("trusted", {"trusted": None}),
        ("deadline", {"deadline": 0.0}),
        ("min_available_nodes", {"min_available_nodes": 6}),
    ):
        with pytest.raises(ValueError, match=rf"^{name}"):
            made.ask(**options)
    with pytest.raises(ValueError, match="threshold"):
        survey_client(fail, surveys=[Survey(QUESTIONS, **{**TERMS, "threshold": 2})])
