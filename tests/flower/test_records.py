"""Records on Flower: both ends with Flower's messages and without a network."""

import csv
import logging
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

import jopeq
from jopeq import Ledger
from jopeq.analysis.plan import RecordRow
from jopeq.circle.circle import Kind
from jopeq.errors import ProtocolError
from jopeq.flower import (
    RecordStrategy,
    RoundFailedError,
    SumMod,
    record_client,
    record_strategy,
    reply_sample,
    reply_total,
)
from jopeq.flower.guard import guard_app
from jopeq.flower.refusals import read_failure
from jopeq.flower.tasks import RECORD, Offer, digest_content
from jopeq.statistics import Scoring
from jopeq.sums.clipped_total import ClippedTotal
from jopeq.sums.record_accounting import epsilon_of
from jopeq.torch import clipped_sum
from tests.flower.delivery import Grid
from tests.flower.identities import write_identity

FEATURES, CLASSES = 64, 10
EXAMPLE = torch.zeros(FEATURES), torch.tensor(0)
DIMENSION = (FEATURES + 1) * CLASSES
TERMS = {"epsilon": 8.0, "clip": 1.0, "records": 1500, "sampling": 0.5, "rounds": 12}
TERMS |= {"clients": 5, "threshold": 3, "most_records": 400}
SCHEME = jopeq.RecordSum(**TERMS)
NODES = (11, 22, 33, 44, 55)
CLASSIFIED = Scoring(kind="classes")


def net():
    model = torch.nn.Linear(FEATURES, CLASSES)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    return model


def digits():
    inputs, labels = load_digits(return_X_y=True)
    inputs = torch.tensor(inputs / np.linalg.norm(inputs, axis=1, keepdims=True)).float()
    return inputs, torch.tensor(labels)


def accuracy_of(arrays):
    model = net()
    model.load_state_dict(arrays.to_torch_state_dict())
    inputs, labels = digits()
    return float((model(inputs[1500:]).argmax(1) == labels[1500:]).float().mean())


def round_of(message):
    return message.content.config_records.get("config", {}).get("server-round", 0)


class Hospitals:
    """Five nodes with keys and ledgers, and a strategy."""

    def __init__(self, flower, folder, scheme=SCHEME, *, app=None, node=None, **options):
        self.folder, self.read = folder, []
        keys = {n: write_identity(folder, n) for n in NODES}
        self.trusted = folder / "trusted"
        self.trusted.write_text("".join(f"{public} # {n}\n" for n, (_, public) in keys.items()))
        self.apps, self.contexts = {}, {}
        inputs, labels = digits()
        for at, n in enumerate(NODES):
            Ledger.create(folder / f"{n}.json", 8.0, 1e-5)
            own = slice(300 * at, 300 * at + 300)
            config = {
                "jopeq-ledger": str(folder / f"{n}.json"),
                "jopeq-identity": str(keys[n][0]),
                "jopeq-trusted": str(self.trusted),
                **(node or {}),
            }
            self.contexts[n] = flower.context(node=n, node_config=config)

            def load(_, n=n, own=own):
                self.read.append(n)
                return inputs[own], labels[own]

            self.apps[n] = app or record_client(
                scheme,
                model=net,
                loss=cross_entropy,
                load=load,
                example=EXAMPLE,
                most_records=320,
                scoring=CLASSIFIED,
            )
        self.grid = Grid(flower, self.apps, self.contexts, round_of)
        self.options = {"trusted": self.trusted, **options}

    def strategy(self, scheme=SCHEME, model=None, **options):
        return RecordStrategy(
            scheme,
            model=model or net(),
            optimizer=lambda p: torch.optim.SGD(p, lr=8.0, momentum=0.9),
            schedule=lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.95),
            deadline=0.01,
            **{"scoring": CLASSIFIED, **self.options, **options},
        )

    def shares(self):
        return {n: Ledger.load(self.folder / f"{n}.json").rounds for n in NODES}

    def offer(self, strategy, node=11, number=1):
        """The first message that would reach a node, and the one with the model."""
        seen = []
        app = self.apps[node]
        self.apps[node] = lambda msg, ctxt: (
            seen.append(self.grid.flower.copied(msg)),
            app(msg, ctxt),
        )[1]
        arrays = ArrayRecord(strategy.model.state_dict())
        strategy.configure_train(number, arrays, ConfigRecord(), self.grid)
        self.apps[node] = app
        return seen


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
    """The same samples, bytes and noise on every run."""
    monkeypatch.setattr(os, "urandom", np.random.default_rng(0).bytes)


def spent(shares):
    return epsilon_of((SCHEME.spend(DIMENSION, shares),), SCHEME.delta, SCHEME.epsilon)


def test_a_run_learns_pays_and_reports(flower, tmp_path):
    hospitals = Hospitals(flower, tmp_path)
    strategy = hospitals.strategy(csv=tmp_path / "rounds.csv")

    def evaluate(_, arrays):
        return MetricRecord({"accuracy": accuracy_of(arrays)})

    result = strategy.start(hospitals.grid, num_rounds=8, evaluate_fn=evaluate)
    accuracy = [m["accuracy"] for m in result.evaluate_metrics_serverapp.values()]
    assert accuracy[-1] > 0.65 > 0.3 > accuracy[0]
    assert accuracy_of(result.arrays) == accuracy[-1]
    # one exchange of keys, then one message a round to each
    assert hospitals.grid.kinds() == [Kind.ASK] * 5 + [Kind.ATTEMPT] * 40
    assert set(hospitals.shares().values()) == {8}
    ledgers = [Ledger.load(tmp_path / f"{n}.json").spent.epsilon for n in NODES]
    assert ledgers == pytest.approx([spent(8)] * 5)
    assert strategy.epsilon == pytest.approx(spent(8))
    bits = SCHEME.plan(DIMENSION).bits
    assert all(
        up < bits * DIMENSION / 8 + 1000 for r in strategy.reports for up in r.bytes_up.values()
    )
    rows = list(csv.DictReader((tmp_path / "rounds.csv").read_text().splitlines()))
    assert [row["round"] for row in rows] == [str(n) for n in range(1, 9)]
    assert float(rows[-1]["epsilon"]) == pytest.approx(spent(8))
    assert float(rows[-1]["accuracy"]) == accuracy[-1]
    assert not any(reply.content.metric_records for reply in hospitals.grid.replies.values())


def test_steps_and_evaluations_are_what_the_plan_says(flower, tmp_path):
    scheme = jopeq.RecordSum(**{**TERMS, "sampling": 1.0, "rounds": 4, "evaluations": 2})
    hospitals, file = Hospitals(flower, tmp_path, scheme), tmp_path / "run.pt"
    options = {"evaluate_every": 2, "checkpoint": file, "csv": tmp_path / "rounds.csv"}
    strategy, models = hospitals.strategy(scheme, **options), []

    def keep(_, arrays):
        models.append(arrays.to_torch_state_dict())

    result = strategy.start(hospitals.grid, num_rounds=2, evaluate_fn=keep)
    again = hospitals.strategy(scheme, **options)  # goes on from the checkpoint
    result.evaluate_metrics_clientapp.update(
        again.start(hospitals.grid, num_rounds=4, evaluate_fn=keep).evaluate_metrics_clientapp
    )
    assert sorted(result.evaluate_metrics_clientapp) == [2, 4]
    inputs, labels = (part[:1500] for part in digits())
    # the first step is the mean of all clipped gradients, with exactly the noise of the plan
    step = np.concatenate([part.numpy().ravel() for part in models[1].values()]) / -8.0
    mean = clipped_sum(net(), cross_entropy, inputs, labels, 1.0).to_numpy() / 1500
    ratio = np.sum((step - mean) ** 2) / scheme.plan(DIMENSION).error
    assert abs(ratio - 1.0) < 5 * np.sqrt(2 / DIMENSION)
    for number, state in ((2, models[2]), (4, models[-1])):
        model, found = net(), result.evaluate_metrics_clientapp[number]
        model.load_state_dict(state)
        chances = model(inputs).softmax(1).detach()
        right = (chances.argmax(1) == labels).float()
        score = float(((right - chances.amax(1)) ** 2).mean())
        for name, true in (("accuracy", float(right.mean())), ("brier-score", score)):
            assert abs(found[name] - true) < 2.5 * (found[f"{name}-upper"] - found[f"{name}-lower"])
        assert found["accuracy-upper"] - found["accuracy-lower"] < 0.15
        assert found["records"] == pytest.approx(1500, rel=0.2)
    # both kinds of events, in the ledger and on the server: exactly what the plan is for
    ledger = Ledger.load(tmp_path / "11.json")
    assert sorted((run.spent.rounds, run.planned) for run in ledger.runs) == [(2, 2), (4, 4)]
    runs = (scheme.spend(DIMENSION, 4), scheme.evaluation.spend(CLASSIFIED.dimension, 2))
    assert again.epsilon == epsilon_of(runs, scheme.delta, scheme.epsilon)
    assert ledger.spent.epsilon == pytest.approx(again.epsilon)
    assert 0.99 * scheme.epsilon < again.epsilon <= scheme.epsilon
    rows = list(csv.DictReader((tmp_path / "rounds.csv").read_text().splitlines()))
    told = [row["hospitals-accuracy"] for row in rows]
    assert told[::2] == ["nan", "nan"]
    assert float(told[3]) == result.evaluate_metrics_clientapp[4]["accuracy"]
    assert float(rows[-1]["epsilon"]) == again.epsilon
    # a third is refused by every hospital, and training does not mind
    again._every, hospitals.read = 1, []
    again._evaluation._shares.clear()
    again.configure_evaluate(5, result.arrays, ConfigRecord(), hospitals.grid)
    assert {one.code for one in again._evaluation.refusing.values()} == {"budget-spent"}
    assert not hospitals.read


@pytest.mark.parametrize(
    "change", ["no evaluations", "another threshold", "another size", "a false spec"]
)
def test_evaluations_that_a_hospital_refuses(flower, tmp_path, change):
    scheme = jopeq.RecordSum(**{**TERMS, "rounds": 2, "evaluations": 2})
    own = SCHEME if change == "no evaluations" else scheme
    hospitals = Hospitals(flower, tmp_path, own)
    scorings = {"another threshold": replace(CLASSIFIED, threshold=0.4)}
    scorings["another size"] = Scoring(kind="score")
    strategy = hospitals.strategy(scheme, scoring=scorings.get(change, CLASSIFIED))
    if change == "a false spec":
        other = jopeq.RecordSum(**{**TERMS, "rounds": 2, "evaluations": 3})
        strategy = hospitals.strategy(other)
    arrays = ArrayRecord(net().state_dict())
    strategy.configure_evaluate(0, arrays, ConfigRecord(), hospitals.grid)
    code = "model" if change == "another threshold" else "settings"
    assert {one.code for one in strategy._evaluation.reports[-1].failed} == {code}
    assert strategy.aggregate_evaluate(0, []) is None
    assert set(hospitals.shares().values()) == {0}
    assert not hospitals.read


def test_hospitals_leave_and_come_back(flower, tmp_path):
    hospitals = Hospitals(flower, tmp_path)
    late = hospitals.apps.pop(55)
    hospitals.grid.is_lost = lambda number, node: number == 2 and node == 22
    strategy = hospitals.strategy()

    def arrive(number, _):
        if number == 3:
            hospitals.apps[55] = late

    strategy.start(hospitals.grid, num_rounds=6, evaluate_fn=arrive)
    members = [sorted(report.entries) for report in strategy.reports]
    assert members[:2] == [[11, 22, 33, 44], [11, 33, 44]]  # round 2 took two attempts
    assert 22 not in members[2]
    assert 22 in members[5]
    assert 55 in members[4]
    assert strategy.reports[1].missing == [22]
    assert hospitals.shares()[11] == 7
    assert hospitals.shares()[55] < 4
    assert strategy.epsilon == pytest.approx(spent(7))


def test_a_killed_server_goes_on(flower, tmp_path):
    hospitals, file = Hospitals(flower, tmp_path), tmp_path / "run.pt"
    first = hospitals.strategy(checkpoint=file)
    first.start(hospitals.grid, num_rounds=3)
    momentum = first.optimizer.state_dict()["state"][0]["momentum_buffer"]
    rounds, second = [], hospitals.strategy(checkpoint=file)
    result = second.start(
        hospitals.grid, num_rounds=5, evaluate_fn=lambda number, _: rounds.append(number)
    )
    assert rounds == [3, 4, 5]
    assert sorted(result.train_metrics_clientapp) == [4, 5]
    assert [report.server_round for report in second.reports] == [1, 2, 3, 4, 5]
    assert second.optimizer.param_groups[0]["lr"] == pytest.approx(8 * 0.95**5)
    assert not torch.equal(momentum, second.optimizer.state_dict()["state"][0]["momentum_buffer"])
    assert set(hospitals.shares().values()) == {5}
    assert second.epsilon == pytest.approx(spent(5))
    other = jopeq.RecordSum(**{**TERMS, "epsilon": 4.0})
    with pytest.raises(ValueError, match="checkpoint"):
        hospitals.strategy(other, checkpoint=file).start(hospitals.grid)
    with pytest.raises(ValueError, match="num_rounds"):
        second.start(hospitals.grid, num_rounds=13)


def test_a_server_killed_amid_an_attempt_counts_it(flower, tmp_path, monkeypatch):
    hospitals, file = Hospitals(flower, tmp_path), tmp_path / "run.pt"
    hospitals.strategy(checkpoint=file).start(hospitals.grid, num_rounds=2)
    pull = hospitals.grid.pull_messages

    def die(numbers):
        if hospitals.grid.kinds()[-1] == Kind.ATTEMPT:
            raise SystemExit  # all have paid
        return pull(numbers)

    with monkeypatch.context() as patch:
        patch.setattr(hospitals.grid, "pull_messages", die)
        with pytest.raises(SystemExit):
            hospitals.strategy(checkpoint=file).start(hospitals.grid, num_rounds=3)
    hospitals.grid.replies.clear()
    second = hospitals.strategy(checkpoint=file)
    second.start(hospitals.grid, num_rounds=3)
    assert [report.server_round for report in second.reports] == [1, 2, 3]
    assert set(hospitals.shares().values()) == {4}
    assert second.epsilon == pytest.approx(spent(4))


def test_a_run_ends_with_the_model_when_nobody_can_pay(flower, tmp_path):
    scheme = jopeq.RecordSum(**{**TERMS, "rounds": 2})
    hospitals = Hospitals(flower, tmp_path, scheme)
    hospitals.strategy(scheme).start(hospitals.grid, num_rounds=1)
    strategy = hospitals.strategy(scheme)
    result = strategy.start(hospitals.grid, num_rounds=2)
    assert sorted(result.train_metrics_clientapp) == [1]
    assert {failure.code for failure in strategy._sums.refusing.values()} == {"budget-spent"}
    assert hospitals.grid.kinds() == 2 * ([Kind.ASK] * 5 + [Kind.ATTEMPT] * 5)  # none in vain
    assert set(hospitals.shares().values()) == {2}
    last = hospitals.strategy(scheme)  # which knows nothing of all that: asking is free
    last.start(hospitals.grid, num_rounds=1)
    assert {failure.code for failure in last.reports[0].failed} == {"budget-spent"}
    assert hospitals.grid.kinds()[20:] == [Kind.ASK] * 5
    assert set(hospitals.shares().values()) == {2}


def test_a_ledger_that_covers_too_little_is_told_and_burns_nobody(flower, tmp_path, caplog):
    """A hospital that cannot pay refuses in the exchange of keys: no other pays for a sum of it."""
    hospitals, file = Hospitals(flower, tmp_path), tmp_path / "run.pt"
    small = spent(3) * 1.0001
    (tmp_path / "33.json").unlink()
    Ledger.create(tmp_path / "33.json", small, 1e-5)
    strategy = hospitals.strategy(checkpoint=file)
    strategy.start(hospitals.grid, num_rounds=5)
    assert "node 33: its ledger covers 3 of 12 rounds" in caplog.text
    assert hospitals.shares() == {11: 5, 22: 5, 33: 3, 44: 5, 55: 5}
    again = hospitals.strategy(checkpoint=file)
    again.start(hospitals.grid, num_rounds=6)
    asked = [m.metadata.dst_node_id for m in hospitals.grid.sent]
    assert asked.count(33) == 4  # for keys and three shares: a restarted server does not forget
    assert [len(report.entries) for report in again.reports] == [5, 5, 5, 4, 4, 4]
    assert hospitals.shares() == {11: 6, 22: 6, 33: 3, 44: 6, 55: 6}


def test_a_ledger_used_up_by_a_failed_attempt_burns_nobody(flower, tmp_path):
    """Its key came with the share, but the next attempt of the round goes without its hospital."""
    hospitals = Hospitals(flower, tmp_path)
    (tmp_path / "33.json").unlink()
    Ledger.create(tmp_path / "33.json", spent(1) * 1.0001, 1e-5)
    hospitals.grid.lose((55, 2))  # after its keys: the first attempt
    strategy = hospitals.strategy()
    strategy.start(hospitals.grid, num_rounds=1)
    assert len(strategy.reports[0].entries) == 3
    assert hospitals.shares() == {11: 2, 22: 2, 33: 1, 44: 2, 55: 0}


def test_an_evaluation_that_uses_up_a_ledger_burns_nobody(flower, tmp_path):
    """Training asks for the keys of a hospital again before it counts on its next share."""
    scheme = jopeq.RecordSum(**{**TERMS, "sampling": 1.0, "rounds": 4, "evaluations": 2})
    hospitals = Hospitals(flower, tmp_path, scheme)
    evaluated = scheme.evaluation.spend(CLASSIFIED.dimension, 1)
    enough = [(scheme.spend(DIMENSION, 2), evaluated), (scheme.spend(DIMENSION, 3),)]
    most = max(epsilon_of(runs, 1e-5, scheme.epsilon) for runs in enough)  # any three of them
    (tmp_path / "33.json").unlink()
    Ledger.create(tmp_path / "33.json", most * 1.0001, 1e-5)
    strategy = hospitals.strategy(scheme, evaluate_every=2)
    strategy.start(hospitals.grid, num_rounds=3)
    assert [len(report.entries) for report in strategy.reports] == [5, 5, 4]
    assert {failure.node for failure in strategy.reports[2].failed} <= {33}  # no attempt is in vain
    assert hospitals.shares() == {11: 4, 22: 4, 33: 3, 44: 4, 55: 4}  # with an evaluation


X, Y = torch.ones(3, FEATURES), torch.tensor([1, 2, 3])


def fail(kind):
    raise kind("record 7 of Mrs Smith")


BAD = {
    "error": lambda _: fail(ValueError),
    "exit": lambda _: fail(SystemExit),
    "interrupt": lambda _: fail(KeyboardInterrupt),
    "unequal shapes": lambda _: (torch.stack([X[0], X[0, :3]]), Y[:2]),
    "unequal counts": lambda _: (X, Y[:2]),
    "empty": lambda _: (X[:0], Y[:0]),
    "nothing": lambda _: None,
    "label out of range": lambda _: (X, Y + 100),
    "not finite": lambda _: (X * torch.nan, Y),
    "another width": lambda _: (X[:, :5], Y),
}
GOOD = {
    "one record": (lambda _: (X[:1], Y[:1]), 1),
    "beyond most_records": (lambda _: (X.repeat(200, 1), Y.repeat(200)), 320),
    "one label out of range": (lambda _: (X, torch.tensor([1, 2, 99])), 2),
    "one of another shape": (lambda _: ([X[0], X[1], X[2, :3]], Y), 2),
    "one label missing": (lambda _: (X, [1, None, 3]), 2),
    "one text": (lambda _: (np.array([*X[:2].tolist(), ["?"] * FEATURES], dtype=object), Y), 2),
    "one patient's number missing": (lambda _: (X, Y, [7, None, 9]), 2),
    "several records of a patient": (lambda _: (X, Y, [7, 7, 9]), 2),
}


QUIET = {"one record", "several records of a patient"}  # nothing is wrong with them


@pytest.mark.parametrize("name", [*BAD, *GOOD])
def test_records_decide_nothing_that_is_seen(flower, tmp_path, name, monkeypatch, caplog):
    scheme = jopeq.RecordSum(**{**TERMS, "sampling": 1.0})
    records, count = GOOD.get(name, (BAD.get(name), 0))
    totals, encode = [], jopeq.RecordSum.encode

    def spy(self, total, **keywords):
        totals.append(total.to_numpy())
        return encode(self, total, **keywords)

    monkeypatch.setattr(jopeq.RecordSum, "encode", spy)
    each = 2 if "patient" in name else 1
    app = record_client(
        scheme,
        model=net,
        loss=cross_entropy,
        load=records,
        example=EXAMPLE,
        most_records=320,
        most_rows=each,
    )
    hospitals = Hospitals(flower, tmp_path, scheme, app=app)
    strategy = hospitals.strategy(scheme)
    strategy.start(hospitals.grid, num_rounds=1)
    (report,) = strategy.reports
    assert len(report.entries) == 5
    assert not report.failed
    assert not report.rejected
    assert len(set(report.bytes_up.values())) == 1
    assert set(hospitals.shares().values()) == {1}
    for total in totals:
        norm = np.linalg.norm(total)
        # the gradients of equal records at zero weights differ by their labels alone
        assert (norm == 0.0) if name in BAD else (0.1 * count < norm <= count)
    assert "Mrs Smith" not in repr([r.content for r in hospitals.grid.replies.values()])
    is_told = any(one.levelno >= logging.WARNING for one in caplog.records)  # at home
    assert is_told == (name not in QUIET)


def other_app(answer, scheme=SCHEME):
    app = ClientApp(mods=[SumMod(scheme)] if scheme else [])
    for register in (app.train, app.evaluate, app.query):
        register()(answer)
    return app


@pytest.mark.parametrize("is_guarded", [False, True])
@pytest.mark.parametrize("sampling", [1.0, 0.5])
def test_apps_of_their_own(flower, tmp_path, monkeypatch, sampling, is_guarded):
    """Nothing counts that is made of a sample which the mod has not drawn, below q = 1."""
    scheme, totals = jopeq.RecordSum(**{**TERMS, "sampling": sampling}), []
    encode = jopeq.RecordSum.encode
    monkeypatch.setattr(
        jopeq.RecordSum, "encode",
        lambda self, total, **k: (totals.append(total.to_numpy()), encode(self, total, **k))[1],
    )  # fmt: skip
    good, drawn = ClippedTotal(DIMENSION, 1.0).add(np.eye(1, DIMENSION)), []

    def total_of(some):
        drawn.append(len(some))
        return ClippedTotal(DIMENSION, 1.0).add(np.eye(1, DIMENSION).repeat(len(some), 0))

    answers = {
        11: lambda msg, _: reply_total(msg, good),
        22: lambda msg, _: reply_total(msg, ClippedTotal(3, 1.0).add(np.eye(1, 3))),
        33: lambda msg, _: reply_sample(msg, 300, total_of),
        44: lambda msg, _: Message(msg.content, reply_to=msg),
        55: lambda msg, _: Message(Error(0, "Mrs Smith"), reply_to=msg),
    }
    limits = {"jopeq-max-epsilon": 8.0, "jopeq-max-delta": 1e-5} if is_guarded else {}
    hospitals = Hospitals(flower, tmp_path, scheme, node=limits)
    for n, answer in answers.items():
        app = other_app(answer, None if is_guarded else scheme)
        hospitals.apps[n] = guard_app(lambda app=app: app) if is_guarded else app
    strategy = hospitals.strategy(scheme)
    strategy.start(hospitals.grid, num_rounds=1)
    assert len(strategy.reports[0].entries) == 5
    (count,) = drawn
    assert count == 300 if sampling == 1.0 else 90 < count < 210
    found = sorted(np.linalg.norm(total).round(2) for total in totals)
    assert found == [0, 0, 0, float(sampling == 1.0), count]
    # without the mod nothing of a total leaves
    message = flower.train_message({"w": np.zeros(3)})
    assert not len(reply_total(message, good).content)


def test_other_messages_tell_nothing_that_the_node_does_not_name(flower, tmp_path):
    def answer(msg, _):
        content = {"metrics": MetricRecord({"loss": 0.25, "ages": [71, 82]})}
        content |= {"config": ConfigRecord({"name": "Smith"}), "arrays": ArrayRecord([np.ones(3)])}
        return Message(RecordDict(content), reply_to=msg)

    def asked(answer, kind, **node):
        context = flower.context(node_config=node)
        return other_app(answer)(flower.train_message({"w": np.zeros(3)}, kind=kind), context)

    for kind in ("evaluate", "query"):
        assert not len(asked(answer, kind).content)
        for kind_of_error in (ValueError, SystemExit):
            assert not len(asked(lambda *_, e=kind_of_error: fail(e), kind).content)
        told = asked(answer, kind, **{"jopeq-metrics": "loss"}).content
        assert list(told) == ["metrics"]
        assert dict(told["metrics"]) == {"loss": 0.25}


def test_a_checkpoint_of_another_format_is_refused_before_anything_is_loaded(flower, tmp_path):
    strategy = Hospitals(flower, tmp_path).strategy()
    before = {name: value.clone() for name, value in strategy.model.state_dict().items()}
    old = {**strategy.state_dict(), "format": 1}  # its reports had fields that are gone
    old["model"] = {name: value + 1.0 for name, value in before.items()}
    old["reports"] = [{"clip": 1.0, "norm_to_clip": 0.5}]
    with pytest.raises(ValueError, match="remove the checkpoint"):
        strategy.load_state_dict(old)
    assert all(torch.equal(value, before[n]) for n, value in strategy.model.state_dict().items())


CHANGES = {
    "other ε": ({"scheme": jopeq.RecordSum(**{**TERMS, "epsilon": 4.0})}, {}, "settings"),
    "other run": ({"run": "another"}, {}, "settings"),
    "other model": ({"model": torch.nn.Linear(FEATURES, 9)}, {}, "settings"),
    "same size, other arrays": ({"model": torch.nn.Linear(129, 5)}, {}, "model"),
    "ε": ({}, {"jopeq-max-epsilon": 7.9}, "limits"),
    "δ": ({}, {"jopeq-max-delta": 1e-6}, "limits"),
    "rounds": ({}, {"jopeq-max-rounds": 11}, "limits"),
    "sampling": ({}, {"jopeq-max-sampling": 0.4}, "limits"),
    "typing error": ({}, {"jopeq-max-eps": 1.0}, "settings"),
    "no keys": ({}, {"jopeq-identity": "", "jopeq-trusted": ""}, "settings"),
    "no list": ({}, {"jopeq-trusted": ""}, "settings"),
    "a budget beside the ledger's": ({}, {"jopeq-budget": 1.0}, "settings"),
    "a δ beside the ledger's": ({}, {"jopeq-budget-delta": 1e-6}, "settings"),
    "no ledger": ({}, {"jopeq-ledger": "/nowhere/ledger.json"}, "budget"),
}


@pytest.mark.parametrize("change", [{"run": "n" * 201}, {"scheme": " " * (1 << 18)}, {"run": 7}])
def test_long_texts_are_refused_before_anything_is_planned(change):
    terms = {"message": b"", "scheme": SCHEME.spec, "dimension": 1, "run": "", **change}
    content = RecordDict({RECORD: ConfigRecord(terms)})
    with pytest.raises(ProtocolError, match="texts"):
        Offer.take(Message(content, dst_node_id=1, message_type="train"))


def test_no_two_contents_have_one_digest():
    """Not where an array's bytes are the name of a record's type, and its description a key."""
    array = Array("|u1", (11,), "numpy.ndarray", b"ArrayRecord")
    described = repr(("x", array.dtype, tuple(array.shape), array.stype))
    one = RecordDict({"!": ArrayRecord({"x": array})})
    two = RecordDict({"!": ArrayRecord(), described: ArrayRecord()})
    assert sorted(two) == ["!", described]
    assert digest_content(one, "train") != digest_content(two, "train")


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_hospital_refuses_before_it_reads_anything(flower, tmp_path, name):
    server, node, code = CHANGES[name]
    hospitals = Hospitals(flower, tmp_path, node=node)
    strategy = hospitals.strategy(**server)
    with pytest.raises(RoundFailedError):
        strategy.start(hospitals.grid, num_rounds=1)
    assert {failure.code for failure in strategy.reports[0].failed} == {code}
    assert {failure.made_by for failure in strategy.reports[0].failed} == {"SumMod"}
    assert not hospitals.read
    assert set(hospitals.shares().values()) == {0}


def test_a_hostile_server_gets_one_answer_for_one_charge(flower, tmp_path):
    hospitals = Hospitals(flower, tmp_path)
    *_, message = hospitals.offer(hospitals.strategy())
    before, read = hospitals.shares(), len(hospitals.read)

    def code(message):
        return read_failure(hospitals.apps[11](message, hospitals.contexts[11])).code

    assert code(flower.copied(message)) == "protocol"  # the key of that attempt is gone
    hospitals.strategy().configure_train(
        1, ArrayRecord(net().state_dict()), ConfigRecord(), hospitals.grid
    )
    *_, fresh = hospitals.offer(hospitals.strategy(), number=2)
    for change in ("model", "config", "record"):
        told = flower.copied(fresh)
        if change == "model":
            told.content["arrays"]["bias"] = Array(np.ones(CLASSES, np.float32))
        elif change == "config":
            told.content["config"]["server-round"] = 77
        else:
            told.content["more"] = ConfigRecord({"who": 1})
        assert code(told) == "protocol"
    bare = flower.train_message({"w": np.zeros(3)})
    assert code(bare) == "settings"
    assert read + 2 * 5 == len(hospitals.read)
    assert hospitals.shares()[11] == before[11] + 2


def test_hostile_hospitals_are_named_and_left_out(flower, tmp_path):
    hospitals = Hospitals(flower, tmp_path)
    app = hospitals.apps[33]

    def garbage(msg, ctxt):
        reply = app(msg, ctxt)
        data = reply.content[RECORD]["message"]
        reply.content[RECORD]["message"] = data[:-1] + bytes([data[-1] ^ 1])
        return reply

    hospitals.apps[33] = garbage
    hospitals.apps[44] = lambda msg, _: Message(RecordDict(), reply_to=msg)
    strategy = hospitals.strategy()
    strategy.start(hospitals.grid, num_rounds=1)
    assert sorted(strategy.reports[0].entries) == [11, 22, 55]
    assert set(strategy.reports[0].rejected) == {33, 44}


def test_unsigned_runs_say_what_is_left(flower, tmp_path, caplog):
    app = record_client(
        SCHEME,
        model=net,
        loss=cross_entropy,
        load=lambda _: (X, Y),
        example=EXAMPLE,
        unsigned=True,
    )
    hospitals = Hospitals(
        flower, tmp_path, app=app, node={"jopeq-identity": "", "jopeq-trusted": ""},
        trusted=None, unsigned=True,
    )  # fmt: skip
    hospitals.strategy().start(hospitals.grid, num_rounds=1)
    assert set(hospitals.shares().values()) == {1}
    for context in hospitals.contexts.values():
        context.node_config["jopeq-max-epsilon"] = 8.0  # which one share alone exceeds
    strategy = hospitals.strategy()
    with pytest.raises(RoundFailedError):
        strategy.start(hospitals.grid, num_rounds=1)
    assert {failure.code for failure in strategy.reports[0].failed} == {"limits"}


def test_the_other_protocol(flower, tmp_path):
    scheme = jopeq.RecordSum(**{**TERMS, "threshold": 4, "dropouts": "recover"})
    hospitals = Hospitals(flower, tmp_path, scheme)
    result = hospitals.strategy(scheme).start(hospitals.grid, num_rounds=8)  # two are noisy
    assert set(hospitals.shares().values()) == {8}
    assert accuracy_of(result.arrays) > 0.3


def test_the_summary_says_what_the_plan_says(monkeypatch):
    lines = []
    monkeypatch.setattr(record_strategy, "log", lambda level, *said: lines.append(said))
    RecordStrategy(SCHEME, model=net(), optimizer=torch.optim.Adam, unsigned=True).summary()
    assert lines[-1][-1] == RecordRow(SCHEME, SCHEME.plan(DIMENSION)).verdict


def test_bad_settings():
    given = {"model": net(), "optimizer": torch.optim.Adam, "unsigned": True}
    with pytest.raises(ValueError, match="trusted"):
        RecordStrategy(SCHEME, **{**given, "unsigned": False})
    with pytest.raises(ValueError, match="min_available_nodes"):
        RecordStrategy(SCHEME, **given, min_available_nodes=2)
    with pytest.raises(ValueError, match="deadline"):
        RecordStrategy(SCHEME, **given, deadline=0.0)
    with pytest.raises(ValueError, match="evaluate_every"):
        RecordStrategy(SCHEME, **given, evaluate_every=2)
    frozen = net().requires_grad_(False)
    app = {"loss": cross_entropy, "load": lambda _: (X, Y), "example": EXAMPLE}
    with pytest.raises(ValueError, match="model"):
        record_client(SCHEME, model=lambda: frozen, **app)
    with pytest.raises(ValueError, match="model"):
        record_client(SCHEME, model=lambda: torch.nn.BatchNorm1d(3), **app)
    with pytest.raises(ValueError, match="most_records"):
        record_client(SCHEME, model=net, most_records=401, **app)
    evaluated = replace(SCHEME, evaluations=1)
    with pytest.raises(ValueError, match="kind='classes'"):  # before anything is charged
        record_client(evaluated, model=net, **app)
    with pytest.raises(ValueError, match="levels"):
        record_client(evaluated, model=net, scoring=Scoring(levels=("a", "b")), **app)
    with pytest.raises(ValueError, match="scheme"):
        SumMod(jopeq.scheme("none"))
