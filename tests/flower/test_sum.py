"""The secure sum's two ends, with Flower's messages and without a network."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import Array, ArrayRecord, ConfigRecord
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, FedYogi

import jopeq
from jopeq import BudgetExceededError, Guarantee, Ledger
from jopeq.flower import JoPEQSumMod, JoPEQSumStrategy, RoundFailedError
from jopeq.flower.budget import Budget
from jopeq.flower.sum_mod import RECORD
from jopeq.random.streams import PrivateStream
from jopeq.secure.messages import Kind, Terms, kind_of
from jopeq.sums import secure_sum


@dataclass(frozen=True, kw_only=True)
class Plain:
    """A mechanism without noise: what arrives is exact."""

    clients: int = 5
    threshold: int = 3
    colluding: int = 0
    participations: int = 2
    spec: str = "plain"

    @property
    def guarantee(self):
        return Guarantee(epsilon=4.0, delta=1e-5, unit="client", adversary="sum")

    def spec_for(self, dimension):
        return f"{self.spec} of {dimension} entries"

    def plan(self, dimension):
        return SimpleNamespace(kept=dimension, bits=12)

    def encode(self, update, *, seed):
        held = np.nan_to_num(np.asarray(update, float), nan=0.0, posinf=1.0, neginf=-1.0)
        return (np.rint(np.clip(held, -1, 1) * 256).astype(int) % 4096).astype(np.uint16)

    def decode(self, total, *, seed, dimension, clients):
        return ((np.asarray(total, int) + 2048) % 4096 - 2048) / (256.0 * clients)


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
        self, flower, folder, scheme=None, mine=None, inner=None, change=None, lost=(), **both
    ):
        scheme = scheme or Plain()
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


@pytest.mark.parametrize("kind", [FedAvg, FedAvgM, FedAdam, FedYogi])
def test_the_inner_strategy_gets_the_mean(flower, tmp_path, kind):
    moments = {"server_momentum": 0.9, "server_learning_rate": 0.5} if kind is FedAvgM else {}
    options = {"min_train_nodes": 5, "min_available_nodes": 5, **moments}
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
    with pytest.raises(RoundFailedError, match="is spent, it does not train again") as caught:
        cohort.round(3)
    assert len(cohort.trained) == before
    assert len(caught.value.reports) == 3
    asked = len(cohort.grid.sent)
    with pytest.raises(RoundFailedError, match="4 of 5 clients have spent their budgets"):
        cohort.round(4)
    assert len(cohort.grid.sent) == asked  # nobody is asked again


def test_a_lost_ledger_is_not_an_empty_one_and_a_new_client_gets_its_own(flower, tmp_path):
    cohort = Cohort(flower, tmp_path)
    (tmp_path / "11.json").unlink()
    cohort.grid.contexts[22].node_config["jopeq-ledger"] = str(tmp_path / "nowhere" / "22.json")
    del cohort.grid.contexts[33].node_config["jopeq-ledger"]
    cohort.round()
    assert sorted(cohort.strategy.reports[-1].failed) == [
        (node, "JoPEQMod: this client's budget does not allow a reply (see this node's log)")
        for node in (11, 22)
    ]
    own = tmp_path / "flower-home" / "jopeq" / "ledgers" / "client.json"
    assert Ledger.load(own).rounds == 1


def test_an_older_copy_of_a_ledger_does_not_count(flower, tmp_path):
    cohort = Cohort(flower, tmp_path)
    older = (tmp_path / "11.json").read_bytes()
    cohort.round(1)
    (tmp_path / "11.json").write_bytes(older)
    _, metrics = cohort.round(2)
    assert metrics["jopeq-clients"] == 4
    assert Ledger.load(tmp_path / "11.json").rounds == 0  # and it took no part


def test_a_ledger_keeps_to_one_sum():
    ledger, scheme = Ledger(4.0, 1e-5), Plain()
    laplace = jopeq.scheme("laplace", epsilon=1.0, clip=1.0)
    ledger.participate(scheme, 10)
    ledger = Ledger.from_json(ledger.to_json())
    used = Ledger(400.0, 1e-5)
    used.encode(laplace, np.zeros(3))
    other = replace(scheme, spec="other")
    for wrong, error, words in (
        (lambda: ledger.participate(other, 10), ValueError, "bound to scheme"),
        (
            lambda: ledger.participate(scheme, 11),
            ValueError,
            "10 entries, got .* ledger of its own",
        ),
        (lambda: ledger.encode(laplace, np.zeros(3)), ValueError, "bound to scheme"),
        (lambda: used.participate(scheme, 10), ValueError, "ledger"),
        (lambda: Ledger(4.0, allow_any_scheme=True).participate(scheme, 10), ValueError, "ledger"),
        (lambda: Ledger(3.0, 1e-5).participate(scheme, 10), BudgetExceededError, "budget of 3"),
    ):
        with pytest.raises(error, match=words):
            wrong()


@pytest.mark.parametrize(
    "mine", [{"threshold": 4}, {"spec": "other"}, {"clients": 4}, {"colluding": 1, "threshold": 4}]
)
def test_a_server_with_other_settings_is_refused(flower, tmp_path, mine):
    cohort = Cohort(flower, tmp_path, mine=replace(Plain(), **mine))
    with pytest.raises(RoundFailedError, match="settings of client and server"):
        cohort.round()
    assert not cohort.trained


def test_what_a_server_may_not_ask(flower, tmp_path):
    """Repeated messages, other models, no message: no second share, no second opening."""
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
    assert len(refused) == 15
    assert all("secure sum was refused" in reply.error.reason for reply in refused)
    assert cohort.trained.count(11) == 3  # arrays of one training
    plain = flower.train_message({"w": np.zeros(3)})
    reply = cohort.grid.apps[11](plain, cohort.grid.contexts[11])
    assert "settings of client and server" in reply.error.reason
    asked = flower.train_message({"w": np.zeros(3)}, kind="evaluate")
    evaluated = cohort.grid.apps[11](asked, cohort.grid.contexts[11])
    assert not evaluated.content.array_records


def test_a_model_that_does_not_fit_the_terms(flower, tmp_path):
    cohort = Cohort(flower, tmp_path)
    deliver = cohort.grid.deliver

    def smaller(message):
        if "arrays" in message.content:
            message.content["arrays"] = ArrayRecord({"w": Array(np.zeros(3))})
        return deliver(message)

    cohort.grid.deliver = smaller
    with pytest.raises(RoundFailedError, match="secure sum was refused"):
        cohort.round()
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


def test_a_plan_is_computed_before_the_ledger_is_locked(flower, tmp_path, monkeypatch):
    """A server may ask for any dimension, and a plan can take seconds."""
    held, planned = [], []
    whole = Budget.alone

    @contextmanager
    def alone(budget):
        with whole(budget):
            held.append(True)
            yield
            held.pop()

    monkeypatch.setattr(Budget, "alone", alone)
    monkeypatch.setattr(Plain, "plan", lambda self, d, plan=Plain.plan: (
        planned.append(bool(held)) or plan(self, d)
    ))  # fmt: skip
    Cohort(flower, tmp_path).round()
    assert planned
    assert not any(planned)


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
    cohort.change(list(CHANGES.values()))


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


@pytest.mark.parametrize("bad", ["nan", "huge", "raises", "shape"])
def test_replies_do_not_depend_on_the_data(flower, tmp_path, bad):
    def change(name, value):
        if bad == "raises":
            raise RuntimeError("training failed")
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


def test_signed_rounds(flower, tmp_path):
    trusted, lines = tmp_path / "trusted", []
    signed, lax = Cohort(flower, tmp_path, lost=[("sum", 22)]), Cohort(flower, tmp_path)
    for node in NODES:
        key = Ed25519PrivateKey.generate()
        form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        path = tmp_path / f"{node}.pem"
        path.touch(0o600)
        path.write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
        lines.append(f"{key.public_key().public_bytes_raw().hex()} hospital {node}")
        for cohort in (signed, lax):
            own = {"jopeq-identity": str(path), "jopeq-trusted": str(trusted)}
            cohort.grid.contexts[node].node_config.update(own)
    trusted.write_text("\n".join(lines))
    signed.strategy = JoPEQSumStrategy(signed.strategy.inner, Plain(), trusted=trusted)
    signed.round()
    signed.change([CHANGES[node] for node in NODES if node != 22])
    with pytest.raises(RoundFailedError, match="settings of client and server"):
        lax.round()  # a server that would do without signatures
    mod = JoPEQSumMod(Plain(), identity=path, trusted=trusted)
    for mode, spoiled in ((0o644, path), (0o666, trusted)):
        spoiled.chmod(mode)  # others could read the key, or add to the list
        with pytest.raises(PermissionError, match="others can"):
            mod._keys(flower.context())
        spoiled.chmod(0o600)
    assert len(mod._keys(flower.context())["trusted"]) == 5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no public key"),
        ("# none\n\n", "holds no public key"),
        ("\ufeff# all\n" + 64 * "a" + " one\n" + 62 * "b", "line 3: a public key is 64 hex"),
        (64 * "a" + "b", "line 1"),
        ("0x" + 64 * "a", "line 1"),
    ],
)
def test_a_list_of_identities_is_read_strictly(tmp_path, text, words):
    path = tmp_path / "trusted"
    path.write_text(text, "utf-8")
    with pytest.raises(ValueError, match=words):
        JoPEQSumStrategy(FedAvg(), Plain(), trusted=path)


def test_impossible_settings(flower, tmp_path):
    for make in (JoPEQSumMod, lambda scheme: JoPEQSumStrategy(FedAvg(), scheme)):
        with pytest.raises(ValueError, match="threshold must be above"):
            make(Plain(threshold=2))
        with pytest.raises(ValueError, match="must be a SecureSum"):
            make(jopeq.scheme("none"))
    for timeout in (0, -1, float("nan"), float("inf"), "x"):
        with pytest.raises(ValueError, match="timeout"):
            JoPEQSumStrategy(FedAvg(), Plain(), timeout=timeout)
    with pytest.raises(ValueError, match="list of names"):
        JoPEQSumMod(Plain(), frozen="b")
    cohort = Cohort(flower, tmp_path, Plain(clients=4))
    with pytest.raises(ValueError, match="5 clients were sampled"):
        cohort.round()


def test_frozen_arrays_are_not_sent(flower, tmp_path):
    cohort = Cohort(flower, tmp_path, frozen=["arrays/b"])
    cohort.round()
    assert not cohort.arrays["b"].numpy().any()
    assert cohort.arrays["w"].numpy().ravel() == pytest.approx(1.075, abs=1e-3)
    assert set(cohort.strategy.reports[0].entries.values()) == {6}


def test_the_real_mechanism_has_the_error_that_it_states(flower, tmp_path, monkeypatch):
    """‖error of the mean‖² is a sum of 600 nearly independent squares of Gaussians: its standard
    deviation is √(2/600) of its mean, and five of these are 29%.
    """
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
