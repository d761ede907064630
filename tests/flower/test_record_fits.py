"""Fits on Flower: models in query messages over the circles of training, without a network."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from flwr.app import Array, Message, RecordDict
from flwr.clientapp import ClientApp
from sklearn.datasets import load_digits

import jopeq
from jopeq import Ledger
from jopeq.circle.circle import Kind
from jopeq.flower import RoundFailedError, ask, fit, head_client, model_client
from jopeq.flower.guard import guard_app
from jopeq.flower.refusals import read_failure
from jopeq.flower.tasks import RECORD
from jopeq.models import Category, Features, Linear, Logistic, Number, Softmax
from jopeq.statistics import Mean, Survey
from jopeq.torch.features import FrozenBody
from tests.flower.delivery import codes_of
from tests.flower.test_records import NODES, Hospitals, fail

TERMS = {"epsilon": 2.0, "clients": 5, "threshold": 3, "records": 1500, "most_records": 400}
COLUMNS = (Number("age", 18, 100), Category("sex", ["F", "M"]))
MODEL = Logistic("death", COLUMNS, messages=5, **TERMS)
POLICY = {"jopeq-max-epsilon": 8.0, "jopeq-max-delta": 1e-5, "jopeq-columns": "age,sex=text,death"}


def make_table(seed):
    rng = np.random.default_rng(seed)
    age, sex = rng.uniform(18, 100, 300), rng.choice(["F", "M"], 300)
    chance = 1 / (1 + np.exp(3.5 - 0.05 * age - 0.6 * (sex == "M")))
    return {"age": age, "sex": sex, "death": rng.random(300) < chance, "name": ["Smith"] * 300}


def make_images(seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, 300)
    rows = rng.normal(0, 0.2, (300, 8)) + 0.5 * np.eye(8)[labels]
    return {"x": rows, "y": labels}


TABLES = {n: make_table(n) for n in NODES}
IMAGES = {n: make_images(n) for n in NODES}
HEAD = Softmax("y", [Features("x", 8)], classes=range(3), messages=4, **TERMS)


@pytest.fixture
def wards(flower, tmp_path):
    """Makes five hospitals; ``read`` lists whose tables were read."""

    def make(models=None, node=POLICY, table=lambda n: TABLES[n]):
        hospitals, read = Hospitals(flower, tmp_path, node=node), []
        for n in NODES:
            own = lambda context, n=n: (read.append(n), table(n))[1]  # noqa: E731
            hospitals.apps[n] = model_client(own, models=models)

        def fitted(model=MODEL, **options):
            given = {"trusted": hospitals.trusted, "deadline": 0.01, **options}
            return fit(hospitals.grid, model, **given)

        return SimpleNamespace(hospitals=hospitals, fit=fitted, read=read)

    return make


def is_near(found, name="age", truth=0.05):
    return abs(found[name].value - truth) < 5 * found[name].error < truth * 2


def test_a_fit_takes_the_planned_messages_and_every_ledger_has_them(wards, tmp_path):
    made = wards()
    grid = made.hospitals.grid
    (tmp_path / "33.json").unlink()
    Ledger.create(tmp_path / "33.json", 2.0, 1e-5)  # which the whole fit fits into
    found = made.fit()
    assert is_near(found)
    assert is_near(found, "sex: M", 0.6)
    assert found.messages == 5
    assert grid.kinds() == [Kind.ASK] * 5 + [Kind.ATTEMPT] * 25
    assert {message.metadata.message_type for message in grid.sent} == {"query"}
    assert made.read.count(11) == 5
    assert set(made.hospitals.shares().values()) == {5}
    ledger = Ledger.load(tmp_path / "33.json")
    assert 0.99 * found.epsilon < ledger.spent.epsilon <= 2.0
    (run,) = ledger.runs
    assert run.about["asked"] == "a logistic model of death by age, sex"
    assert len(set(grid.sizes()[:5])) == len(set(grid.sizes()[5:])) == 1
    with pytest.raises(RoundFailedError) as error:
        made.fit()  # a ledger takes a fit once
    assert (error.value.code, codes_of(error)) == ("budget-spent", {"budget-spent"})
    survey = Survey([Mean("age", 0, 120)], epsilon=0.5, clients=5, threshold=3, records=2000)
    answers = ask(grid, survey, trusted=made.hospitals.trusted, deadline=0.01)
    assert answers["age"]["mean"].value > 40.0  # the same app answers surveys


def test_sums_of_two_dimensions_have_one_epsilon(wards, tmp_path, monkeypatch):
    sums, encode = [], jopeq.RecordSum.encode
    monkeypatch.setattr(
        jopeq.RecordSum,
        "encode",
        lambda self, total, **k: (sums.append(total.dimension), encode(self, total, **k))[1],
    )
    made = wards(node={**POLICY, "jopeq-columns": "x, y"}, table=lambda n: IMAGES[n])
    found = made.fit(HEAD)
    assert sums == [27] * 5 + [45] * 5 + [27] * 10
    assert found.messages == 4
    assert found.score(IMAGES[11]) > 0.6 > 0.5 > np.mean(np.bincount(IMAGES[11]["y"])) / 300
    ledger = Ledger.load(tmp_path / "11.json")
    assert sorted((run.spent.rounds, run.planned) for run in ledger.runs) == [(1, 1), (3, 3)]
    assert 0.99 * found.epsilon < ledger.spent.epsilon
    assert found.epsilon == HEAD.epsilon_after([3, 1]) <= 2.0


REFUSED = {
    "ε": ({"epsilon": 8.5}, None, {}, "limits"),
    "messages": ({}, None, {"jopeq-max-rounds": 4}, "limits"),
    "unlisted column": ({"columns": [Number("name", 0, 1)]}, None, {}, "limits"),
    "unlisted outcome": ({"outcome": "name"}, None, {}, "limits"),
    "other model": ({"epsilon": 0.5}, [MODEL], {}, "settings"),
    "none at all": ({}, [], {}, "settings"),
    "colluding": ({"colluding": 0}, None, {}, "settings"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_hospital_refuses_before_it_reads_anything(wards, name):
    change, models, node, code = REFUSED[name]
    made = wards(models, {**POLICY, **node})
    with pytest.raises(RoundFailedError) as error:
        made.fit(replace(MODEL, **change))
    assert codes_of(error) == {code}
    assert not made.read
    assert set(made.hospitals.shares().values()) == {0}


def test_a_server_cannot_change_what_a_sum_is_computed_with(wards, flower):
    made = wards([MODEL], {})
    hospitals, app, seen = made.hospitals, made.hospitals.apps[11], []

    def hold(msg, ctxt):
        seen.append(flower.copied(msg))
        return app(msg, ctxt) if len(seen) < 3 else Message(RecordDict(), reply_to=msg)

    hospitals.apps[11] = hold
    with pytest.raises(RoundFailedError, match="round 2"):
        made.fit()
    assert hospitals.shares()[11] == 1
    changes = {
        "weights": ("sent", "weights", Array(np.ones(3))),
        "another shape": ("sent", "weights", Array(np.ones(4))),
        "not finite": ("sent", "weights", Array(np.full(3, np.nan))),
        "step": ("fit", "step", 3),
        "no step": ("fit", "step", 99),
        "no number": ("fit", "step", "two"),
    }
    for change, (record, name, value) in changes.items():
        told = flower.copied(seen[2])
        told.content[record][name] = value
        code = read_failure(app(told, hospitals.contexts[11])).code
        assert code == ("protocol" if change in ("weights", "step") else "model"), change
    assert (made.read.count(11), hospitals.shares()[11]) == (1, 1)
    assert not app(flower.copied(seen[2]), hospitals.contexts[11]).has_error()
    assert hospitals.shares()[11] == 2


BAD = {
    "error": lambda _: fail(ValueError),
    "exit": lambda _: fail(SystemExit),
    "nothing": lambda _: None,
    "no column": lambda _: {"age": [50.0]},
    "uneven": lambda _: {**make_table(1), "age": [50.0]},
}


@pytest.mark.parametrize("name", BAD)
def test_tables_decide_nothing_that_is_seen(wards, name, caplog):
    model = Linear("age", COLUMNS[1:], bounds=(18, 100), **TERMS)
    made = wards([model], {}, table=lambda n: BAD[name](n) if n == 11 else TABLES[n])
    found = made.fit(model)
    assert set(made.hospitals.shares().values()) == {1}
    assert len(set(made.hospitals.grid.sizes()[5:])) == 1
    assert abs(found.figures["records"] - 1200) < 100
    assert any(one.levelname == "ERROR" for one in caplog.records)


def test_who_drops_out_costs_a_sum_and_averages_begin_anew(wards, monkeypatch):
    told, advance = [], Logistic.advance
    monkeypatch.setattr(
        Logistic,
        "advance",
        lambda self, *given, **more: (told.append(more), advance(self, *given, **more))[1],
    )
    made = wards()
    made.hospitals.grid.lose((33, 4))  # keys, and then the third sum
    with pytest.raises(RoundFailedError, match="round 3"):
        made.fit()
    made.hospitals.grid.lose((33, 4))
    repeated = replace(MODEL, repeats=1)
    told.clear()
    found = made.fit(repeated)
    assert is_near(found)
    assert [one["clients"] for one in told] == [5, 5, 4, 4, 4]  # it backs off
    assert [one["is_same"] for one in told] == [False, True, False, True, True]
    assert found.messages == 6
    assert found.epsilon == repeated.epsilon_after([6]) <= 2.0


def test_a_killed_server_goes_on_and_knows_what_was_paid(wards, tmp_path, monkeypatch):
    made, file = wards(), tmp_path / "fit.npz"
    grid, model = made.hospitals.grid, replace(MODEL, repeats=1)
    pull = grid.pull_messages

    def die(numbers):
        if len(grid.sent) == 20:  # after keys and two sums, all have paid for the third
            raise SystemExit
        return pull(numbers)

    for other, code in ((MODEL, "repeats"), (model, None)):
        with monkeypatch.context() as patch:
            patch.setattr(grid, "pull_messages", die)
            with pytest.raises(SystemExit):
                made.fit(other, checkpoint=file)
        assert file.stat().st_mode & 0o077 == 0
        grid.replies.clear()
        if code is not None:  # no sum is left for it, so nobody pays for others
            with pytest.raises(RoundFailedError, match=code):
                made.fit(other, checkpoint=file)
            with pytest.raises(ValueError, match="checkpoint"):
                made.fit(model, checkpoint=file)
            assert set(made.hospitals.shares().values()) == {3}
            file.unlink()
            grid.sent.clear()
    found = made.fit(model, checkpoint=file)
    assert is_near(found)
    assert (found.messages, found.epsilon) == (6, model.epsilon_after([6]))
    assert set(made.hospitals.shares().values()) == {3 + 6}
    count = len(grid.sent)
    assert str(made.fit(model, checkpoint=file)) == str(found)  # a fit that is done asks nobody
    assert len(grid.sent) == count


def test_the_guard_makes_the_rows(wards):
    made = wards()
    inner = {**made.hospitals.apps, 22: ClientApp()}
    inner[44] = model_client(lambda _: TABLES[44], models=[])  # it has agreed to none
    for n, app in inner.items():
        made.hospitals.apps[n] = guard_app(lambda app=app: app)
    found = made.fit()
    assert abs(found.figures["records"] - 900) < 100
    assert set(made.hospitals.shares().values()) == {5}
    assert all(list(content) == [RECORD] for content in made.hospitals.grid.contents)


def test_bad_settings(wards):
    made = wards()
    for name, options in (
        ("model", {"model": "logistic"}),
        ("trusted", {"trusted": None}),
        ("deadline", {"deadline": 0.0}),
    ):
        with pytest.raises(ValueError, match=rf"^{name}"):
            made.fit(**options)
    with pytest.raises(ValueError, match="threshold"):
        model_client(fail, models=[replace(MODEL, threshold=2)])


def test_sums_of_two_dimensions_outlast_a_killed_server_and_a_drop_out(
    wards, tmp_path, monkeypatch
):
    made = wards(node={**POLICY, "jopeq-columns": "x, y"}, table=lambda n: IMAGES[n])
    grid, model, file = made.hospitals.grid, replace(HEAD, repeats=1), tmp_path / "fit.npz"
    pull = grid.pull_messages

    def die(numbers):
        if len(grid.sent) == 20:  # after keys, means and keys, all have paid for the moments
            raise SystemExit
        return pull(numbers)

    with monkeypatch.context() as patch:
        patch.setattr(grid, "pull_messages", die)
        with pytest.raises(SystemExit):
            made.fit(model, checkpoint=file)
    grid.replies.clear()
    grid.lose((33, 4))  # keys, moments, keys, and then the first gradient
    found = made.fit(model, checkpoint=file)
    assert found.score(IMAGES[11]) > 0.6
    assert (found.messages, found.epsilon) == (6, model.epsilon_after([4, 2]))
    assert made.hospitals.shares() == dict.fromkeys(NODES, 6) | {33: 3}


@pytest.mark.parametrize("deaths", [None, False, True])
def test_a_hospital_without_records_or_of_one_class_answers_like_any_other(wards, deaths, caplog):
    rows = slice(0) if deaths is None else slice(None)
    odd = {name: list(one)[rows] for name, one in TABLES[11].items()}
    if deaths is not None:
        odd["death"] = [deaths] * 300
    made = wards(table=lambda n: odd if n == 11 else TABLES[n])
    found = made.fit()
    assert set(made.hospitals.shares().values()) == {5}
    assert len(set(made.hospitals.grid.sizes()[5:])) == 1
    assert abs(found.figures["records"] - len(odd["age"]) - 1200) < 100
    assert not any(one.levelname == "ERROR" for one in caplog.records)


BODY = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.Tanh())
PUBLIC = torch.zeros(8, 8), torch.tensor(0)
LAYER = Softmax("digit", [Features("x", 32)], classes=range(10), messages=4, **TERMS)


def test_a_new_head_on_a_frozen_body(wards, tmp_path, monkeypatch):
    """Features are computed once, lie where nobody else reads them, and are gone afterwards."""
    made = wards(node={**POLICY, "jopeq-columns": "x, digit"})
    hospitals, counts, modes = made.hospitals, [], []
    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8) / 16.0
    images[0] = np.nan  # counts as zeros
    file, compute = tmp_path / "11.json.features" / "features.npz", FrozenBody.features
    monkeypatch.setattr(
        FrozenBody, "features", lambda *given: (counts.append(given[2]), compute(*given))[1]
    )

    def start_apps(body=BODY, **options):
        for at, n in enumerate(NODES):
            own = slice(300 * at, 300 * at + 300)
            load = lambda _, n=n, own=own: (made.read.append(n), (images[own], labels[own]))[1]  # noqa: E731
            hospitals.apps[n] = head_client(body, load=load, example=PUBLIC, **options)

    start_apps()
    app = hospitals.apps[11]

    def watch(msg, ctxt):
        reply, both = app(msg, ctxt), (file.parent, file)
        modes.append([one.stat().st_mode & 0o777 for one in both if one.exists()])
        return reply

    hospitals.apps[11] = watch
    found = made.fit(LAYER)
    assert sorted(made.read) == list(NODES)
    assert counts == [400] * 5  # padded: the time tells nothing
    assert modes == [[], *[[0o700, 0o600]] * 5, [0o700]]  # keys are asked for three times
    own = torch.tensor(images[1500:], dtype=torch.float32)
    with torch.no_grad():
        guesses = found.to_torch()(BODY(own)).argmax(1).numpy()
        np.testing.assert_array_equal(found.predict({"x": BODY(own).numpy()}), guesses)
    assert np.mean(guesses == labels[1500:]) > 0.6
    assert abs(found.figures["records"] - 1499) < 150
    # what another run has left, or somebody has damaged, is computed again
    file.write_bytes(b"rubbish")
    file.chmod(0o600)
    hospitals.contexts[11].run_id = 2
    start_apps(models=[LAYER])
    with pytest.raises(RoundFailedError):
        made.fit(replace(LAYER, epsilon=1.0), run="agreed")
    made.read.clear()
    start_apps(run="again")
    made.fit(replace(LAYER, messages=2), run="again")
    assert sorted(made.read) == list(NODES)
    # what a fit has left that stopped is of use to the same body alone
    other = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.Tanh())
    for stopped, of, read in (("1", BODY, list(NODES)), ("2", BODY, []), ("3", other, list(NODES))):
        start_apps(of, run=stopped)
        made.read.clear()
        hospitals.grid.lose((22, 4))  # keys, means, keys, and then the moments
        with pytest.raises(RoundFailedError):
            made.fit(LAYER, run=stopped)
        assert sorted(made.read) == read


def test_models_that_do_not_fit_the_body_are_refused_before_anybody_pays(wards):
    made = wards(node={**POLICY, "jopeq-columns": "*"})
    for n in NODES:
        made.hospitals.apps[n] = head_client(BODY, load=fail, example=PUBLIC)
    others = (
        replace(LAYER, columns=[Features("x", 31)]),
        replace(LAYER, classes=["cat", "dog"]),
        MODEL,
    )
    for other in others:
        with pytest.raises(RoundFailedError) as error:
            made.fit(other)
        assert codes_of(error) == {"settings"}
        with pytest.raises(ValueError, match="Features of size 32"):
            head_client(BODY, load=fail, example=PUBLIC, models=[other])
    assert set(made.hospitals.shares().values()) == {0}
