"""The secure sum's two ends, with Flower's messages and without a network."""

import asyncio
import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import Array, ArrayRecord, ConfigRecord
from flwr.serverapp import strategy as strategies
from flwr.serverapp.strategy import FedAvg

import jopeq
from jopeq import Ledger
from jopeq.analysis.learning import judge
from jopeq.circle.messages import Kind, Terms, kind_of
from jopeq.flower import JoPEQSumMod, JoPEQSumStrategy, RoundFailedError
from jopeq.flower.refusals import read_failure
from jopeq.flower.sum_mod import RECORD
from jopeq.random.streams import PrivateStream
from jopeq.sums import secure_sum


@dataclass(frozen=True, kw_only=True)
class Plain(jopeq.SecureSum):
    """A mechanism without noise: what arrives is exact."""

    epsilon: float = 4.0
    clip: float = 1.0
    clients: int = 5
    threshold: int = 3
    colluding: int = 0
    participations: int = 2

    def plan(self, dimension):
        return replace(super().plan(dimension), kept=dimension, bits=12)

    def encode(self, update, *, seed):
        held = np.nan_to_num(np.asarray(update, float), nan=0.0, posinf=1.0, neginf=-1.0)
        return (np.rint(np.clip(held, -1, 1) * 256).astype(int) % 4096).astype(np.uint16)

    def decode(self, total, *, seed, dimension, clients):
        return ((np.asarray(total, int) + 2048) % 4096 - 2048) / (256.0 * clients)


PLAIN = Plain()
NODES = (11, 22, 33, 44, 55)
CHANGES = dict(zip(NODES, (0.25, -0.5, 0.125, 0.5, 0.0), strict=True))
STEPS = {Kind.TERMS: "keys", Kind.ROSTER: "shares", Kind.INBOX: "sum"}
STEPS |= {Kind.SURVIVORS: "open", Kind.SIGNATURES: "signed"}


class Grid:
    """Delivers copies of messages to apps; ``lost`` are (step, node) that never arrive."""

    def __init__(self, copied, apps, contexts, lost=()):
        self.copied, self.apps, self.contexts = copied, apps, contexts
        self.lost, self.sent = set(lost), []

    def get_node_ids(self):
        return list(self.apps)

    def send_and_receive(self, messages, *, timeout=None):
        return [reply for message in messages if (reply := self.deliver(message)) is not None]

    def deliver(self, message):
        node = message.metadata.dst_node_id
        step = STEPS[kind_of(message.content[RECORD]["message"])]
        if (step, node) in self.lost:
            return None
        self.sent.append((step, self.copied(message)))
        return self.apps[node](self.copied(message), self.contexts[node])


class Cohort:
    """Five nodes with their ledgers, and a strategy."""

    def __init__(
        self, flower, folder, scheme=PLAIN, mine=None, inner=None, change=None, lost=(), **both
    ):
        inner = inner or FedAvg(min_train_nodes=3, min_available_nodes=3)
        self.strategy = JoPEQSumStrategy(inner, scheme, **both)
        self.trained, contexts, apps = [], {}, {}
        for node in NODES:
            path = folder / f"{node}.json"
            if not path.exists():
                Ledger.create(path, 4.0, 1e-5)
            contexts[node] = flower.context(node=node, node_config={"jopeq-ledger": str(path)})

            def moved(name, value, node=node):
                self.trained.append(node)
                return (change or (lambda _, v: v + CHANGES[node]))(name, value)

            apps[node] = flower.trainer(moved, [JoPEQSumMod(mine or scheme, **both)])
        self.grid = Grid(flower.copied, apps, contexts, lost)
        start = {"w": np.ones((2, 3), np.float32), "b": np.zeros(4, np.float16)}
        self.arrays = flower.records({**start, "steps": np.array(7)})["arrays"]

    def round(self, number=1):
        messages = self.strategy.configure_train(number, self.arrays, ConfigRecord(), self.grid)
        replies = self.grid.send_and_receive(messages)
        arrays, metrics = self.strategy.aggregate_train(number, replies)
        self.arrays = self.arrays if arrays is None else arrays
        return arrays, metrics

    def change(self, values):
        """The mean of some nodes' changes, as every entry shows it."""
        moved = [self.arrays["w"].numpy() - 1, self.arrays["b"].numpy()]
        assert {a.dtype.name for a in moved} == {"float32", "float16"}
        assert self.arrays["steps"].numpy().dtype == np.int64
        for array in moved:
            np.testing.assert_allclose(array, np.mean(values), atol=1e-3)


def codes(report):
    return {failure.code for failure in report.failed}


@pytest.mark.parametrize("step", ["keys", "shares", "sum", "open"])
def test_dropouts_at_every_step(flower, tmp_path, step):
    cohort = Cohort(flower, tmp_path, lost=[(step, 22), (step, 55)])
    _, metrics = cohort.round()
    there = NODES if step == "open" else (11, 33, 44)
    cohort.change([CHANGES[node] for node in there])
    assert metrics["jopeq-clients"] == len(there)
    # a charge stands though the sum was never opened to the client
    assert [Ledger.load(tmp_path / f"{n}.json").rounds for n in (11, 22)] == [1, step == "open"]
    assert not list(tmp_path.glob(".*.round")) or step != "keys"  # opened: secrets are gone
    two = Cohort(flower, tmp_path, lost=[(step, node) for node in (11, 22, 33)])
    assert two.round()[0] is None  # below the threshold: the model stays
    assert two.strategy.reports[-1].bytes_up == {}


MOMENTS = {"FedAvgM": {"server_momentum": 0.9, "server_learning_rate": 0.5}}
MOMENTS |= {"FedProx": {"proximal_mu": 0.1}}


@pytest.mark.parametrize("name", ["FedAvg", "FedProx", "FedAvgM", "FedAdam", "FedYogi"])
def test_the_inner_strategy_gets_the_mean(flower, tmp_path, name):
    kind = getattr(strategies, name)
    options = {"min_train_nodes": 5, "min_available_nodes": 5, **MOMENTS.get(name, {})}
    cohort, plain = Cohort(flower, tmp_path, inner=kind(**options)), kind(**options)
    arrays = cohort.arrays
    for number in (1, 2):
        cohort.round(number)
        replies = []
        for message in plain.configure_train(number, arrays, ConfigRecord(), cohort.grid):
            change = CHANGES[message.metadata.dst_node_id]
            app = flower.trainer(lambda _, v, c=change: v + c if v.ndim else v, [])
            replies.append(app(flower.copied(message), flower.context()))
        arrays = plain.aggregate_train(number, replies)[0]
    for name in ("w", "b"):
        ours, theirs = (record[name].numpy().astype(float) for record in (cohort.arrays, arrays))
        np.testing.assert_allclose(ours, theirs, atol=3e-3)


def test_strategies_that_compare_models_are_refused():
    krum = {"num_malicious_nodes": 1}
    many = strategies.MultiKrum(**krum, num_nodes_to_select=2)
    few = (strategies.Krum(**krum), strategies.Bulyan(**krum), many)
    for chosen in (strategies.FedMedian(), strategies.FedTrimmedAvg(), *few):
        wrapper = strategies.DifferentialPrivacyClientSideFixedClipping(chosen, 1.0, 1.0, 5)
        for inner in (chosen, wrapper):
            with pytest.raises(ValueError, match=type(chosen).__name__):
                JoPEQSumStrategy(inner, Plain())


# Before round 1, when rounds run out, and after a restart


def run(cohort, rounds):
    return cohort.strategy.start(cohort.grid, cohort.arrays, rounds)


def quiet(**options):
    return FedAvg(**{"fraction_evaluate": 0.0, "min_train_nodes": 5, **options})


@pytest.mark.parametrize(("epsilon", "is_hopeless"), [(4.0, False), (0.05, True)])
def test_a_run_begins_with_its_plan_and_a_verdict(flower, tmp_path, caplog, epsilon, is_hopeless):
    scheme = Plain(epsilon=epsilon, participations=1)
    cohort = Cohort(flower, tmp_path, scheme, inner=quiet())
    with caplog.at_level("INFO", logger="flwr"), suppress(RoundFailedError):
        run(cohort, 1)  # the ledgers are for ε = 4
    (line,) = [one for one in caplog.records if "10 entries" in one.getMessage()]
    assert (line.levelname == "WARNING") == is_hopeless
    for part in ("10 kept at 12 bits", judge(scheme.expected_error(10), 1)):
        assert str(part) in line.getMessage()
    assert str(scheme.guarantee) in caplog.text


def test_more_rounds_than_participations_are_told_and_end_with_the_model(flower, tmp_path, caplog):
    cohort = Cohort(flower, tmp_path, inner=quiet())
    result = run(cohort, 4)
    assert sorted(result.train_metrics_clientapp) == [1, 2]
    cohort.arrays = result.arrays
    np.testing.assert_allclose(result.arrays["w"].numpy(), 1 + 2 * 0.075, atol=1e-3)
    told = [one.getMessage() for one in caplog.records if "participations=2" in one.getMessage()]
    assert caplog.text.index(told[0]) < caplog.text.index("[budget-spent]")


def test_fewer_nodes_than_the_threshold_are_told_before_round_1(flower, tmp_path):
    few = quiet(min_train_nodes=2, min_available_nodes=2, fraction_train=0.4)
    cohort = Cohort(flower, tmp_path, inner=few)
    with pytest.raises(ValueError, match="min_train_nodes=3"):
        run(cohort, 1)
    assert not cohort.grid.sent


def test_a_run_goes_on_after_a_restart(flower, tmp_path, caplog):
    """Same model as of a server that was never stopped; spent nodes and rounds are remembered."""
    adam = {"fraction_evaluate": 0.0, "min_train_nodes": 5, "min_available_nodes": 5}

    def cohort(name):
        (tmp_path / name).mkdir(exist_ok=True)
        return Cohort(flower, tmp_path / name, inner=strategies.FedAdam(**adam))

    expected, first = run(cohort("whole"), 2).arrays, cohort("parts")
    saved = run(first, 1).arrays
    state = pickle.loads(pickle.dumps(first.strategy.state_dict()))
    again = cohort("parts")
    again.arrays = saved
    again.strategy.load_state_dict(state)
    found = run(again, 2)
    assert "after 1" in caplog.text  # one round of two is left
    np.testing.assert_array_equal(found.arrays["w"].numpy(), expected["w"].numpy())
    assert [report.server_round for report in again.strategy.reports] == [1, 2, 3]
    other = JoPEQSumStrategy(quiet(), Plain(clip=2.0))
    with pytest.raises(ValueError, match="scheme"):
        other.load_state_dict(state)


def test_whoever_sends_garbage_is_named_and_left_out_of_the_next_round(flower, tmp_path, caplog):
    cohort = Cohort(flower, tmp_path, inner=FedAvg(min_train_nodes=4, min_available_nodes=4))
    deliver = cohort.grid.deliver

    def garble(message):
        reply = deliver(message)
        if message.metadata.dst_node_id == 22 and "arrays" in message.content:
            reply.content[RECORD]["message"] = b"garbage"
        return reply

    cohort.grid.deliver = garble
    cohort.round(1)
    assert list(cohort.strategy.reports[0].rejected) == [22]
    told = [one.levelname for one in caplog.records if "node 22" in one.getMessage()]
    assert told == ["WARNING"]
    asked = len(cohort.grid.sent)
    cohort.round(2)
    assert 22 not in {m.metadata.dst_node_id for _, m in cohort.grid.sent[asked:]}


def test_running_statistics_move_in_their_own_coordinates(flower, tmp_path):
    """The mean of the clients' logarithms and deviations, as ``jopeq.updated_state`` applies it."""
    before = {"bn.running_mean": 2.0, "bn.running_var": 4.0, "w": 1.0}
    after = {"bn.running_mean": 3.0, "bn.running_var": 2.0, "w": 1.25}
    cohort = Cohort(flower, tmp_path, change=lambda name, v: np.full_like(v, after[name]))
    cohort.arrays = flower.records({name: np.full(3, v) for name, v in before.items()})["arrays"]
    cohort.round()
    for name, value in after.items():
        np.testing.assert_allclose(cohort.arrays[name].numpy(), value, atol=0.01)


def test_the_ledger_counts_rounds_before_training(flower, tmp_path):
    cohort = Cohort(flower, tmp_path, lost=[("sum", 55)])
    cohort.round(1)
    cohort.round(2)
    assert [Ledger.load(tmp_path / f"{node}.json").rounds for node in NODES] == [2, 2, 2, 2, 0]
    spent = Ledger.load(tmp_path / "11.json").spent
    assert (spent.epsilon, spent.delta, spent.adversary, spent.unit) == (4.0, 1e-5, "sum", "client")
    before = len(cohort.trained)
    for number in (3, 4):
        with pytest.raises(RoundFailedError) as caught:
            cohort.round(number)
        assert caught.value.code == "budget-spent"
        asked = len(cohort.grid.sent)
    assert (len(cohort.trained), len(caught.value.reports)) == (before, 3)
    assert [step for step, _ in cohort.grid.sent[asked:]] == []  # nobody is asked again


def test_a_lost_ledger_is_not_an_empty_one_and_a_new_client_gets_its_own(flower, tmp_path):
    cohort = Cohort(flower, tmp_path)
    (tmp_path / "11.json").unlink()
    cohort.grid.contexts[22].node_config["jopeq-ledger"] = str(tmp_path / "nowhere" / "22.json")
    del cohort.grid.contexts[33].node_config["jopeq-ledger"]
    cohort.round()
    failed = sorted(cohort.strategy.reports[-1].failed)
    assert [one[:3] for one in failed] == [(n, "JoPEQSumMod", "budget") for n in (11, 22)]
    own = tmp_path / "flower-home" / "jopeq" / "ledgers" / "client.json"
    assert Ledger.load(own).rounds == 1


@pytest.mark.parametrize("key", ["jopeq-budget", "jopeq-budget-delta"])
def test_a_budget_that_a_sum_does_not_read_is_refused(flower, tmp_path, caplog, key):
    cohort = Cohort(flower, tmp_path)
    cohort.grid.contexts[11].node_config[key] = 1.0
    cohort.round()
    assert [one[:3] for one in cohort.strategy.reports[-1].failed] == [
        (11, "JoPEQSumMod", "budget")
    ]
    assert f"{key} is 1.0" in caplog.text
    assert 11 not in cohort.trained
    assert Ledger.load(tmp_path / "11.json").rounds == 0


def test_the_nodes_ledger_wins_over_the_apps_code(flower, tmp_path):
    cohort, other = Cohort(flower, tmp_path), tmp_path / "other.json"
    Ledger.create(other, 4.0, 1e-5)
    cohort.grid.apps[11] = flower.trainer(lambda _, v: v, [JoPEQSumMod(PLAIN, ledger=other)])
    cohort.round()
    assert [Ledger.load(path).rounds for path in (tmp_path / "11.json", other)] == [1, 0]


def test_an_older_copy_of_a_ledger_does_not_count(flower, tmp_path):
    cohort = Cohort(flower, tmp_path)
    older = (tmp_path / "11.json").read_bytes()
    cohort.round(1)
    (tmp_path / "11.json").write_bytes(older)
    _, metrics = cohort.round(2)
    assert metrics["jopeq-clients"] == 4
    assert Ledger.load(tmp_path / "11.json").rounds == 0  # and it took no part


@pytest.mark.parametrize(
    "mine", [{"threshold": 4}, {"clip": 2.0}, {"clients": 4}, {"colluding": 1, "threshold": 4}]
)
def test_a_server_with_other_settings_is_refused(flower, tmp_path, mine):
    cohort = Cohort(flower, tmp_path, mine=replace(PLAIN, **mine))
    with pytest.raises(RoundFailedError):
        cohort.round()
    assert (codes(cohort.strategy.reports[-1]), cohort.trained) == ({"settings"}, [])


def test_a_repeated_message_gets_no_second_share_or_opening(flower, tmp_path):
    cohort = Cohort(flower, tmp_path)
    deliver, refused = cohort.grid.deliver, []

    def twice(message):
        first = deliver(message)
        step, again = cohort.grid.sent[-1]
        if step != "keys":  # which begins a new round
            node = again.metadata.dst_node_id
            refused.append(cohort.grid.apps[node](again, cohort.grid.contexts[node]))
        return first

    cohort.grid.deliver = twice
    cohort.round()
    cohort.change(list(CHANGES.values()))
    assert [read_failure(reply).code for reply in refused] == ["protocol"] * 15
    assert cohort.trained.count(11) == 3  # arrays of one training


def test_without_the_protocol_training_is_refused_and_an_evaluation_loses_its_arrays(
    flower, tmp_path
):
    cohort = Cohort(flower, tmp_path)
    for kind in ("train", "evaluate"):
        asked = flower.train_message({"w": np.zeros(3)}, kind=kind)
        reply = cohort.grid.apps[11](asked, cohort.grid.contexts[11])
        if kind == "train":
            assert (read_failure(reply).code, cohort.trained) == ("settings", [])
        else:
            assert not reply.content.array_records


def test_a_model_that_does_not_fit_the_terms(flower, tmp_path):
    cohort = Cohort(flower, tmp_path)
    deliver = cohort.grid.deliver

    def smaller(message):
        if "arrays" in message.content:
            message.content["arrays"] = ArrayRecord({"w": Array(np.zeros(3))})
        return deliver(message)

    cohort.grid.deliver = smaller
    assert cohort.round()[0] is None
    assert codes(cohort.strategy.reports[-1]) == {"protocol"}
    assert (cohort.trained, Ledger.load(tmp_path / "11.json").rounds) == ([], 0)


def test_all_shares_of_a_sum_follow_one_plan(flower, tmp_path):
    """A server adds an array to one client's model: its noise would be of another dimension."""
    cohort = Cohort(flower, tmp_path)
    deliver = cohort.grid.deliver

    def padded(message):
        if message.metadata.dst_node_id == 22 and "arrays" in message.content:
            message.content["more"] = ArrayRecord({"x": Array(np.zeros(1, np.float32))})
        return deliver(message)

    cohort.grid.deliver = padded
    _, metrics = cohort.round()
    assert (metrics["jopeq-clients"], 22 in cohort.trained) == (4, False)


def test_shares_that_do_not_open_name_their_sender_and_the_run_goes_on(flower, tmp_path):
    cohort = Cohort(flower, tmp_path, scheme=Plain(threshold=4))
    deliver = cohort.grid.deliver

    def garbage(message):
        reply = deliver(message)
        if message.metadata.dst_node_id == 22 and cohort.grid.sent[-1][0] == "shares":
            record = reply.content[RECORD]
            record["message"] = record["message"][:54] + bytes(len(record["message"]) - 54)
        return reply

    cohort.grid.deliver = garbage
    assert cohort.round()[0] is None
    assert list(cohort.strategy.reports[-1].rejected) == [22]
    assert Ledger.load(tmp_path / "11.json").rounds == 0  # nobody was charged but 22
    cohort.grid.deliver = deliver
    cohort.round(2)
    cohort.change([CHANGES[node] for node in NODES if node != 22])  # it sits this round out


def test_a_share_leaves_in_the_round_that_it_was_made_for(flower, tmp_path):
    """The server begins another round of the same name while the app trains."""
    file, begun = tmp_path / ".11.json.round", []

    def change(name, value):
        if cohort.trained[-1] == 11 and not begun:
            state = json.loads(file.read_bytes())
            terms = Terms.from_bytes(bytes.fromhex(state["terms"]))
            state["terms"] = replace(terms, seed=bytes(32)).to_bytes().hex()
            file.write_text(json.dumps(state))
            begun.append(name)
        return value

    cohort = Cohort(flower, tmp_path, change=change)
    _, metrics = cohort.round()
    assert (metrics["jopeq-clients"], len(begun)) == (4, 1)


def test_clients_that_share_a_home_do_not_answer_for_each_other(flower, tmp_path, caplog):
    cohort = Cohort(flower, tmp_path)
    for node in (11, 22):
        del cohort.grid.contexts[node].node_config["jopeq-ledger"]
    _, metrics = cohort.round()
    assert metrics["jopeq-clients"] == 4  # whoever came last
    assert "a name of its own (jopeq-client)" in caplog.text


def test_two_openings_at_once_are_one(flower, tmp_path):
    """A SuperNode answers messages side by side: the file and its lock let one through."""
    cohort = Cohort(flower, tmp_path)
    deliver, answers = cohort.grid.deliver, []

    def side_by_side(message):
        if STEPS[kind_of(message.content[RECORD]["message"])] != "open":
            return deliver(message)
        with ThreadPoolExecutor(4) as pool:
            replies = sorted(pool.map(deliver, [message] * 4), key=lambda r: r.has_error())
        answers.append([reply.has_error() for reply in replies])
        return replies[0]

    cohort.grid.deliver = side_by_side
    cohort.round()
    cohort.change(list(CHANGES.values()))
    assert answers == [[False, True, True, True]] * 5


EXITS = (RuntimeError, SystemExit, asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)


@pytest.mark.parametrize("bad", ["nan", "huge", "shape", *EXITS])
def test_replies_do_not_depend_on_the_data(flower, tmp_path, bad):
    def change(name, value):
        if bad in EXITS:
            raise bad
        if bad == "shape":
            return np.zeros(1)
        return value + np.array(np.nan if bad == "nan" else 1e30).astype(value.dtype)

    with np.errstate(all="ignore"):
        cohort = Cohort(flower, tmp_path, change=change)
        _, metrics = cohort.round()
    assert metrics["jopeq-clients"] == 5
    assert len({metrics[f"jopeq-bytes-up/{node}"] for node in NODES}) == 1
    if bad != "huge":
        cohort.change([0.0])


@pytest.fixture
def signed(flower, tmp_path):
    """A cohort whose nodes have identities, and the file of all of them."""
    trusted, lines = tmp_path / "trusted", []
    cohort = Cohort(flower, tmp_path, lost=[("sum", 22)])
    for node in NODES:
        key = Ed25519PrivateKey.generate()
        form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        path = tmp_path / f"{node}.pem"
        path.touch(0o600)
        path.write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
        lines.append(f"{key.public_key().public_bytes_raw().hex()} hospital {node}")
        own = {"jopeq-identity": str(path), "jopeq-trusted": str(trusted)}
        cohort.grid.contexts[node].node_config.update(own)
    trusted.write_text("\n".join(lines))
    return cohort, trusted


def test_signed_rounds(signed):
    cohort, trusted = signed
    cohort.strategy = JoPEQSumStrategy(cohort.strategy.inner, Plain(), trusted=trusted)
    cohort.round()
    cohort.change([CHANGES[node] for node in NODES if node != 22])


def test_the_node_chooses_whom_it_trusts(signed, tmp_path):
    cohort, trusted = signed
    (tmp_path / "others").write_text(64 * "a")
    mod = JoPEQSumMod(Plain(), identity=tmp_path / "none.pem", trusted=tmp_path / "others")
    found = mod._keys(cohort.grid.contexts[NODES[0]])
    assert len(found["trusted"]) == len(trusted.read_text().splitlines())


def test_large_cohorts_without_identities_need_a_trusted_server(flower, tmp_path):
    many = {"clients": 101, "threshold": 52}
    with pytest.raises(ValueError, match="is_server_trusted"):
        Cohort(flower, tmp_path, Plain(**many)).round()
    cohort = Cohort(flower, tmp_path, Plain(**many), is_server_trusted=True)
    cohort.round()
    assert codes(cohort.strategy.reports[0]) == set()  # all agree; five are fewer than 52
    assert not cohort.trained


@pytest.mark.parametrize(("mode", "name"), [(0o644, "55.pem"), (0o666, "trusted"), (0, None)])
def test_servers_without_signatures_and_identities_open_to_others_are_refused(
    signed, tmp_path, mode, name
):
    cohort, trusted = signed
    if name:
        cohort.strategy = JoPEQSumStrategy(cohort.strategy.inner, PLAIN, trusted=trusted)
        (tmp_path / name).chmod(mode)
    with suppress(RoundFailedError):  # where all of them refuse
        cohort.round()
    assert codes(cohort.strategy.reports[-1]) == {"settings"}


def test_a_list_of_identities_is_read_strictly(tmp_path):
    path, key = tmp_path / "trusted", 64 * "a"
    third = f"\ufeff# all\n{key} one\n{62 * 'b'}"
    for text in ("", "# none\n\n", third, f"{key}b", f"0x{key}"):
        path.write_text(text, "utf-8")
        with pytest.raises(ValueError, match="line 3" if text == third else "line 1|public key"):
            JoPEQSumStrategy(FedAvg(), Plain(), trusted=path)


@pytest.mark.parametrize("make", [JoPEQSumMod, partial(JoPEQSumStrategy, FedAvg())])
def test_impossible_settings_are_refused_at_construction(make):
    for scheme, words in ((Plain(threshold=2), "threshold"), (jopeq.scheme("none"), "SecureSum")):
        with pytest.raises(ValueError, match=words):
            make(scheme)
    for given in ({"frozen": "b"}, {"frozen": "auto"}, {"model": object}):
        with pytest.raises(ValueError, match="frozen"):
            make(Plain(), **given)


def test_impossible_timeouts_and_too_many_clients_are_refused(flower, tmp_path):
    for timeout in (0, -1, float("nan"), float("inf"), "x"):
        with pytest.raises(ValueError, match="timeout"):
            JoPEQSumStrategy(FedAvg(), Plain(), timeout=timeout)
    with pytest.raises(ValueError, match="fraction_train"):
        Cohort(flower, tmp_path, Plain(clients=4)).round()


@pytest.mark.parametrize("is_auto", [True, False])
def test_frozen_arrays_are_not_sent(flower, tmp_path, is_auto):
    """Named, or those that a module does not train: here an adapter of 4 entries remains."""
    trains = lambda is_on: SimpleNamespace(requires_grad=is_on)  # noqa: E731
    layer = SimpleNamespace(
        named_parameters=lambda recurse: [("w", trains(False)), ("b", trains(True))],
        named_buffers=lambda recurse: [],
    )
    auto = {"frozen": "auto", "model": SimpleNamespace(named_modules=lambda: [("", layer)])}
    cohort = Cohort(flower, tmp_path, **(auto if is_auto else {"frozen": ["arrays/w"]}))
    cohort.round()
    assert set(cohort.strategy.reports[0].entries.values()) == {4}
    np.testing.assert_array_equal(cohort.arrays["w"].numpy(), 1)
    np.testing.assert_allclose(cohort.arrays["b"].numpy(), 0.075, atol=1e-3)


def test_the_real_mechanism_has_the_error_that_it_states(flower, tmp_path, monkeypatch):
    """A sum of 600 nearly independent squares: five standard deviations are 29% of its mean."""
    size, count, keys = 600, len(NODES), iter(range(100))
    monkeypatch.setattr(
        secure_sum, "private_stream", lambda _: PrivateStream.reproducible(bytes([next(keys)]) * 32)
    )
    scheme = jopeq.SecureSum(epsilon=4.0, delta=1e-5, clip=1.0, clients=count, threshold=4)
    changes = np.random.default_rng(3).normal(0, 0.7 / size**0.5, (count, size))
    inner, left = FedAvg(min_train_nodes=count, min_available_nodes=count), iter(changes)
    train = lambda _, value: value + next(left).astype(np.float32)  # noqa: E731
    cohort = Cohort(flower, tmp_path, scheme, inner=inner, change=train)
    cohort.arrays = ArrayRecord({"w": Array(np.zeros(size, np.float32))})
    arrays, metrics = cohort.round()
    error = float(np.square(arrays["w"].numpy() - changes.mean(axis=0)).sum())
    norm = float(np.linalg.norm(changes.mean(axis=0)))
    expected = scheme.expected_error(size, norm=norm, clients=count)
    assert error == pytest.approx(expected, rel=0.29)
    assert metrics["jopeq-epsilon"] == scheme.guarantee.epsilon
