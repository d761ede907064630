"""Sums over clients on Flower: both ends with Flower's messages and without a network."""

import asyncio
import itertools
import pickle
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord
from flwr.serverapp import strategy as strategies
from flwr.serverapp.strategy import FedAvg

import jopeq
from jopeq import Ledger
from jopeq.circle import joins
from jopeq.flower import RoundFailedError, SumMod, SumStrategy, server
from jopeq.flower.refusals import read_failure
from jopeq.flower.tasks import RECORD
from tests.flower.delivery import Grid
from tests.flower.identities import write_identity

TERMS = {"epsilon": 16.0, "clip": 2.0, "clients": 5, "threshold": 4, "rounds": 2, "bits": 24}
SCHEME = jopeq.ClientSum(**TERMS)
NODES = (11, 22, 33, 44, 55)
CHANGES = dict(zip(NODES, (0.25, -0.5, 0.125, 0.5, 0.0), strict=True))


def step_of(message):
    if joins(message.content[RECORD]["message"]):
        return "keys"
    return "sum" if message.content.array_records else "other"


class Cohort:
    """Five nodes with ledgers, and a strategy."""

    def __init__(
        self, flower, folder, scheme=SCHEME, *, mine=None, inner=None, change=None, node=None,
        trusted=None, nodes=NODES, frozen=(), **options,
    ):  # fmt: skip
        self.trained, contexts, apps = [], {}, {}
        unsigned = {"unsigned": True} if trusted is None else {"trusted": trusted}
        for n in nodes:
            path = folder / f"{n}.json"
            if not path.exists():
                Ledger.create(path, 16.0, 1e-5)
            config = {"jopeq-ledger": str(path), **(node or {})}
            contexts[n] = flower.context(node=n, node_config=config)

            def moved(name, value, n=n):
                self.trained.append(n)
                return (change or (lambda _, v: v + CHANGES[n]))(name, value)

            mod = SumMod(mine or scheme, unsigned=trusted is None, frozen=frozen)
            apps[n] = flower.trainer(moved, [mod])
        self.grid = Grid(flower, apps, contexts, step_of)
        inner = inner or FedAvg(**quiet)
        options = {"deadline": 0.01, "frozen": frozen, **unsigned, **options}
        self.strategy = SumStrategy(inner, scheme, **options)
        start = {"w": np.ones((2, 3), np.float32), "b": np.zeros(4, np.float16)}
        self.arrays = flower.records({**start, "steps": np.array(7)})["arrays"]

    def run(self, rounds=1):
        result = self.strategy.start(self.grid, self.arrays, rounds)
        self.arrays = result.arrays
        return result

    def shares(self, folder):
        return [Ledger.load(folder / f"{n}.json").rounds for n in NODES if n in self.grid.apps]


quiet = {"fraction_evaluate": 0.0, "min_train_nodes": 2, "min_available_nodes": 2}


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
    """A clock that counts how often it is asked, so that a busy machine changes nothing."""
    ticks = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: 1e-3 * next(ticks), sleep=lambda _: None)
    monkeypatch.setattr(server, "time", clock)


@pytest.fixture
def exact(monkeypatch):
    """Shares without noise: what arrives is what was sent."""
    unit = 2.0**20

    def encode(self, total, **_):
        return (np.rint(total.to_numpy() * unit).astype(np.int64) % (1 << 24)).astype(np.uint32)

    def decode(self, total, **_):
        return ((total.astype(np.int64) + (1 << 23)) % (1 << 24) - (1 << 23)) / unit / 5

    monkeypatch.setattr(jopeq.RecordSum, "encode", encode)
    monkeypatch.setattr(jopeq.RecordSum, "decode", decode)


def means(cohort):
    return [np.mean(cohort.arrays["w"].numpy() - 1), np.mean(cohort.arrays["b"].numpy())]


def test_a_run_has_the_error_that_the_plan_states(flower, tmp_path):
    """A sum of 600 nearly independent squares: five standard deviations are 29% of its mean."""
    size = 600
    changes = np.random.default_rng(3).normal(0, 0.7 / size**0.5, (5, size))
    left = iter(changes)
    cohort = Cohort(flower, tmp_path, change=lambda _, v: v + next(left).astype(np.float32))
    cohort.arrays = ArrayRecord({"w": Array(np.zeros(size, np.float32))})
    result = cohort.run()
    error = float(np.square(result.arrays["w"].numpy() - changes.mean(axis=0)).sum())
    assert error == pytest.approx(SCHEME.expected_error(size) * 4.0, rel=0.29)
    (metrics,) = result.train_metrics_clientapp.values()
    assert metrics["jopeq-epsilon"] <= SCHEME.epsilon
    spent = Ledger.load(tmp_path / "11.json").spent
    assert (spent.unit, spent.adversary, spent.epsilon) == (
        "client",
        "sum",
        metrics["jopeq-epsilon"],
    )


@pytest.mark.parametrize("dropouts", ["recover", "repeat"])
@pytest.mark.parametrize("step", ["keys", "sum"])
def test_the_mean_is_of_those_who_answered(flower, tmp_path, exact, step, dropouts):
    cohort = Cohort(flower, tmp_path, jopeq.ClientSum(**TERMS, dropouts=dropouts))
    cohort.grid.is_lost = lambda found, node: (found, node) == (step, 22)
    cohort.run()
    there = [CHANGES[n] for n in NODES if n != 22]
    np.testing.assert_allclose(means(cohort), np.mean(there), atol=1e-3)
    assert sorted(cohort.strategy.reports[0].entries) == [11, 33, 44, 55]
    assert {a.dtype for a in cohort.arrays.values()} == {"float32", "float16", "int64"}
    assert cohort.arrays["steps"].numpy() == 7
    repeated = dropouts == "repeat" and step == "sum"
    assert cohort.shares(tmp_path) == [1 + repeated, 0, 1 + repeated, 1 + repeated, 1 + repeated]


def test_too_few_clients_open_nothing(flower, tmp_path):
    cohort = Cohort(flower, tmp_path)
    cohort.grid.is_lost = lambda step, node: step == "sum" and node in (11, 22)
    with pytest.raises(RoundFailedError):
        cohort.strategy.start(cohort.grid, cohort.arrays, 1, timeout=1e-6)
    assert cohort.strategy.reports[0].bytes_up.keys() <= set(NODES)
    assert not cohort.strategy.reports[0].entries


@pytest.mark.parametrize("name", ["FedAvg", "FedProx", "FedAvgM", "FedAdam", "FedYogi"])
def test_the_inner_strategy_gets_the_mean(flower, tmp_path, exact, name):
    kind = getattr(strategies, name)
    options = {"FedAvgM": {"server_momentum": 0.9}, "FedProx": {"proximal_mu": 0.1}}.get(name, {})
    cohort, plain = (
        Cohort(flower, tmp_path, inner=kind(**options, **quiet)),
        kind(**options, **quiet),
    )
    arrays = cohort.arrays
    found = cohort.run(2)
    for number in (1, 2):
        replies = []
        for message in plain.configure_train(number, arrays, ConfigRecord(), cohort.grid):
            change = CHANGES[message.metadata.dst_node_id]
            app = flower.trainer(lambda _, v, c=change: v + c if v.ndim else v, [])
            replies.append(app(flower.copied(message), flower.context()))
        arrays = plain.aggregate_train(number, replies)[0]
    for one in ("w", "b"):
        ours, theirs = (record[one].numpy().astype(float) for record in (found.arrays, arrays))
        np.testing.assert_allclose(ours, theirs, atol=1e-3)


def test_strategies_that_compare_models_are_refused():
    krum = {"num_malicious_nodes": 1}
    many = strategies.MultiKrum(**krum, num_nodes_to_select=2)
    few = (strategies.Krum(**krum), strategies.Bulyan(**krum), many)
    for chosen in (strategies.FedMedian(), strategies.FedTrimmedAvg(), *few):
        wrapper = strategies.DifferentialPrivacyClientSideFixedClipping(chosen, 1.0, 1.0, 5)
        for inner in (chosen, wrapper):
            with pytest.raises(ValueError, match=type(chosen).__name__):
                SumStrategy(inner, SCHEME, unsigned=True)


def test_cohorts_are_random(flower, tmp_path):
    nodes = tuple(range(1, 13))
    cohort = Cohort(
        flower, tmp_path, change=lambda _, v: v, nodes=nodes, min_available_nodes=5,
    )  # fmt: skip
    result = cohort.run(2)
    first, second = (set(report.entries) for report in cohort.strategy.reports)
    assert len(first) == len(second) == 5
    assert sorted(result.train_metrics_clientapp) == [1, 2]
    seen = set()
    for _ in range(8):
        able = cohort.strategy._rounds._nodes(cohort.grid, np.inf)
        seen.add(frozenset(able))
    assert len(seen) > 4  # of 792 cohorts


def test_a_run_begins_with_its_plan_and_ends_when_rounds_run_out(flower, tmp_path, caplog):
    cohort = Cohort(flower, tmp_path)
    with caplog.at_level("INFO", logger="flwr"):
        result = cohort.run(4)
    assert sorted(result.train_metrics_clientapp) == [1, 2]
    assert "10 entries" in caplog.text
    assert "invents clients" in caplog.text
    assert all(line in caplog.text for line in str(SCHEME.guarantee).splitlines())
    assert caplog.text.index("rounds=2 of the scheme") < caplog.text.index("covers no more rounds")
    assert cohort.shares(tmp_path) == [2] * 5


def test_a_run_goes_on_after_a_restart(flower, tmp_path, exact):
    """The same model as of a server that was never stopped; rounds are numbered on."""

    def cohort(name):
        (tmp_path / name).mkdir(exist_ok=True)
        return Cohort(flower, tmp_path / name, inner=strategies.FedAdam(**quiet))

    expected, first = cohort("whole").run(2).arrays, cohort("parts")
    saved = first.run(1).arrays
    state = pickle.loads(pickle.dumps(first.strategy.state_dict()))
    again = cohort("parts")
    again.arrays = saved
    again.strategy.load_state_dict(state)
    found = again.run(2)
    np.testing.assert_allclose(found.arrays["w"].numpy(), expected["w"].numpy(), atol=2e-3)
    assert [report.server_round for report in again.strategy.reports[:2]] == [1, 2]
    with pytest.raises(ValueError, match="scheme"):
        SumStrategy(
            FedAvg(), jopeq.ClientSum(**{**TERMS, "clip": 1.0}), unsigned=True
        ).load_state_dict(state)


def test_running_statistics_move_in_their_own_coordinates(flower, tmp_path, exact):
    """The mean of the clients' logarithms and deviations, as ``jopeq.updated_state`` applies it."""
    before = {"bn.running_mean": 2.0, "bn.running_var": 4.0, "w": 1.0}
    after = {"bn.running_mean": 2.5, "bn.running_var": 3.0, "w": 1.25}
    cohort = Cohort(flower, tmp_path, change=lambda name, v: np.full_like(v, after[name]))
    cohort.arrays = flower.records({name: np.full(3, v) for name, v in before.items()})["arrays"]
    cohort.run()
    for name, value in after.items():
        np.testing.assert_allclose(cohort.arrays[name].numpy(), value, atol=2e-3)


REFUSED = {
    "another threshold": ({"mine": {"threshold": 5}}, "settings"),
    "another clip": ({"mine": {"clip": 1.0}}, "settings"),
    "another run": ({"run": "b"}, "settings"),
    "less ε": ({"node": {"jopeq-max-epsilon": 15.0}}, "limits"),
    "another model": ({"frozen": ["b"], "mod": ()}, "model"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_client_refuses_before_it_trains(flower, tmp_path, name):
    given, code = REFUSED[name]
    options = {key: one for key, one in given.items() if key not in ("mine", "mod")}
    mine = jopeq.ClientSum(**{**TERMS, **given["mine"]}) if "mine" in given else None
    cohort = Cohort(flower, tmp_path, mine=mine, **options)
    if "mod" in given:
        for n in NODES:
            cohort.grid.apps[n] = flower.trainer(
                lambda *_: pytest.fail("trained"), [SumMod(SCHEME, unsigned=True)]
            )
    with pytest.raises(RoundFailedError):
        cohort.strategy.start(cohort.grid, cohort.arrays, 1, timeout=1e-6)
    assert {one.code for one in cohort.strategy.reports[0].failed} == {code}
    assert {one.made_by for one in cohort.strategy.reports[0].failed} == {"SumMod"}
    assert (cohort.trained, cohort.shares(tmp_path)) == ([], [0] * 5)


def test_a_server_that_changes_a_message_gets_no_share(flower, tmp_path):
    """A model of another size, or one more array: its noise would be of another dimension."""
    cohort = Cohort(flower, tmp_path)

    def change(message):
        if step_of(message) == "sum" and message.metadata.dst_node_id == 22:
            message.content["more"] = ArrayRecord({"x": Array(np.zeros(1, np.float32))})
        if step_of(message) == "sum" and message.metadata.dst_node_id == 33:
            message.content["arrays"]["w"] = Array(np.zeros((2, 3), np.float32))
        return message

    cohort.grid.change = change
    with pytest.raises(RoundFailedError):
        cohort.strategy.start(cohort.grid, cohort.arrays, 1, timeout=1e-6)
    codes = {one.node: one.code for one in cohort.strategy.reports[0].failed}
    assert codes == {22: "model", 33: "protocol"}
    assert not {22, 33} & set(cohort.trained)


def test_a_repeated_message_gets_no_second_answer(flower, tmp_path):
    cohort, refused = Cohort(flower, tmp_path), []
    push = cohort.grid.push

    def twice(message):
        number = push(message)
        if step_of(message) != "keys":  # which begins a new attempt
            node = message.metadata.dst_node_id
            again = flower.copied(message)
            refused.append(cohort.grid.apps[node](again, cohort.grid.contexts[node]))
        return number

    cohort.grid.push = twice
    cohort.run()
    assert {read_failure(reply).code for reply in refused} == {"protocol"}
    assert len(cohort.strategy.reports[0].entries) == 5
    assert (cohort.shares(tmp_path), cohort.trained.count(11)) == ([1] * 5, 3)


def test_whoever_sends_garbage_is_named_and_left_out(flower, tmp_path, caplog):
    cohort = Cohort(flower, tmp_path)

    def garble(node, reply):
        if node == 22 and not reply.has_error():
            reply.content[RECORD]["message"] = b"garbage"
        return reply

    cohort.grid.spoil = garble
    cohort.run()
    assert list(cohort.strategy.reports[0].rejected) == [22]
    assert 22 not in cohort.strategy.reports[0].entries


EXITS = (RuntimeError, SystemExit, asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)


@pytest.mark.parametrize("bad", ["nan", "huge", "shape", *EXITS])
def test_replies_do_not_depend_on_the_data(flower, tmp_path, exact, bad):
    def change(name, value):
        if bad in EXITS:
            raise bad
        if bad == "shape":
            return np.zeros(1)
        return value + np.array(np.nan if bad == "nan" else 1e30).astype(value.dtype)

    with np.errstate(all="ignore"):
        cohort = Cohort(flower, tmp_path, change=change)
        cohort.run()
    (report,) = cohort.strategy.reports
    assert sorted(report.entries) == list(NODES)
    assert len(set(report.bytes_up.values())) == 1
    if bad != "huge":
        np.testing.assert_allclose(means(cohort), 0.0, atol=1e-3)


def test_only_metrics_that_the_node_names_answer_an_evaluation(flower, tmp_path):
    cohort = Cohort(flower, tmp_path)
    for node, expected in (({}, []), ({"jopeq-metrics": "loss"}, ["metrics"])):
        message = flower.train_message({"w": np.zeros(3)}, kind="evaluate")
        reply = cohort.grid.apps[11](message, flower.context(node_config=node))
        assert list(reply.content) == expected
    message = flower.train_message({"w": np.zeros(3)})
    assert read_failure(cohort.grid.apps[11](message, flower.context())).code == "settings"


def test_frozen_arrays_are_not_sent(flower, tmp_path, exact):
    cohort = Cohort(flower, tmp_path, frozen=["w"])
    cohort.run()
    assert set(cohort.strategy.reports[0].entries.values()) == {4}
    np.testing.assert_array_equal(cohort.arrays["w"].numpy(), 1)
    assert means(cohort)[1] == pytest.approx(0.075, abs=1e-3)


# Identities


@pytest.fixture
def signed(flower, tmp_path):
    """A cohort whose nodes have identities; ``write`` makes the list of some of them."""
    keys = {n: write_identity(tmp_path, n) for n in (*NODES, 66)}
    trusted = tmp_path / "trusted"

    def write(*nodes, path=trusted):
        path.write_text("".join(f"{keys[n][1]} hospital {n}\n" for n in nodes))
        return path

    def make(*listed, **options):
        write(*listed)
        cohort = Cohort(flower, tmp_path, trusted=trusted, nodes=listed, **options)
        for n in listed:
            own = {"jopeq-identity": str(keys[n][0]), "jopeq-trusted": str(trusted)}
            cohort.grid.contexts[n].node_config.update(own)
        return cohort

    return SimpleNamespace(make=make, write=write, keys=keys, trusted=trusted)


@pytest.mark.parametrize("dropouts", ["recover", "repeat"])
def test_signed_rounds(signed, dropouts):
    cohort = signed.make(*NODES, scheme=jopeq.ClientSum(**TERMS, dropouts=dropouts))
    cohort.grid.is_lost = lambda step, node: (step, node) == ("keys", 22)
    cohort.run(2)
    assert [len(report.entries) for report in cohort.strategy.reports] == [4, 4]
    assert not cohort.strategy.reports[0].rejected


@pytest.mark.parametrize("is_resumed", [False, True])
def test_hospitals_join_and_the_list_grows_between_rounds(signed, caplog, is_resumed):
    """Whoever has an older list is told so, on both ends, and nobody pays for that."""
    scheme = jopeq.ClientSum(**{**TERMS, "clients": 6, "threshold": 5}, dropouts="repeat")
    cohort = signed.make(*NODES, scheme=scheme)
    strategy, arrays = cohort.strategy, cohort.run(1).arrays
    older = signed.write(*NODES, path=signed.trusted.with_name("older"))
    new = signed.make(*NODES, 66, scheme=scheme)
    cohort.grid.apps[66], cohort.grid.contexts[66] = new.grid.apps[66], new.grid.contexts[66]
    cohort.grid.contexts[22].node_config["jopeq-trusted"] = str(older)
    if is_resumed:
        strategy = SumStrategy(FedAvg(**quiet), scheme, trusted=signed.trusted, deadline=0.01)
        strategy.load_state_dict(cohort.strategy.state_dict())
    strategy._timeout = 20.0  # for five of the six, who would never come to an older list
    strategy.configure_train(2, arrays, ConfigRecord(), cohort.grid)
    report = strategy.reports[-1]
    assert sorted(report.entries) == [11, 33, 44, 55, 66]
    assert {one.node: one.code for one in report.failed} == {22: "trusted"}
    for said in (report.failed[0].reason, caplog.text):
        assert "fingerprint" in said
        assert f"missing here {signed.keys[66][1][:8]}…, missing there none" in said
    assert ("1 new, 0 gone" in caplog.text) != is_resumed
    assert Ledger.load(signed.trusted.with_name("22.json")).rounds == 1


@pytest.mark.parametrize(("mode", "name"), [(0o644, "55.pem"), (0o666, "trusted")])
def test_identities_open_to_others_are_refused(signed, tmp_path, mode, name):
    cohort = signed.make(*NODES)
    (tmp_path / name).chmod(mode)
    if name == "trusted":
        with pytest.raises(PermissionError):
            cohort.run()
        return
    cohort.run()
    assert {one.node: one.code for one in cohort.strategy.reports[0].failed} == {55: "settings"}


def test_a_list_of_identities_is_read_strictly(tmp_path):
    path, key = tmp_path / "trusted", 64 * "a"
    third = f"\ufeff# all\n{key} one\n{62 * 'b'}"
    for text in ("", "# none\n\n", third, f"{key}b", f"0x{key}"):
        path.write_text(text, "utf-8")
        with pytest.raises(ValueError, match="line 3" if text == third else "line 1|public key"):
            SumStrategy(FedAvg(), SCHEME, trusted=path)


@pytest.mark.parametrize(
    "make", [partial(SumMod, unsigned=True), partial(SumStrategy, FedAvg(), unsigned=True)]
)
def test_impossible_settings_are_refused_at_construction(make):
    with pytest.raises(ValueError, match="ClientSum"):
        make(jopeq.scheme("none"))
    with pytest.raises(ValueError, match="frozen"):
        make(SCHEME, frozen="b")
    for given in ({"deadline": 0}, {"min_available_nodes": 6}, {"trusted": "list"}):
        with pytest.raises(ValueError, match=next(iter(given))):
            SumStrategy(FedAvg(), SCHEME, **{"unsigned": True, **given})
