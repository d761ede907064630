"""Records on Flower's deployment engine: a survey, a fit, killed nodes and SuperLinks, a guard."""

import json
import signal
import sys

import numpy as np
import pytest

import jopeq
from jopeq.models import Fit
from jopeq.sums.record_accounting import epsilon_of
from tests.flower.identities import write_identity
from tests.flower.test_federation import deployment, needs_flower, wait_for

pytestmark = needs_flower
TERMS = {"epsilon": 4.0, "clip": 1.0, "records": 1200, "sampling": 0.5, "rounds": 8}
TERMS |= {"clients": 4, "threshold": 3, "most_records": 400}
GUARD = (sys.executable, "-m", "jopeq", "guard", "--")

APP = '''
import json, time
from pathlib import Path
import numpy as np
import torch
from flwr.app import ArrayRecord, Error, Message
from flwr.serverapp import ServerApp
from torch.nn.functional import cross_entropy
import jopeq
from jopeq.flower import RecordStrategy, ask, fit, record_client
from jopeq.models import Number, Softmax
from jopeq.statistics import Mean, Proportions, Survey

scheme = jopeq.RecordSum(**TERMS)
survey = Survey(
    [Mean("ink", 0, 16), Proportions("digit", list("0123456789"))],
    epsilon=0.5, clients=4, threshold=3, records=2000,
)
model = Softmax(
    "digit", [Number("ink", 0, 16)], classes=range(10), messages=2,
    epsilon=0.5, clients=4, threshold=3, records=2000,
)


def net():
    return torch.nn.Linear(64, 10)


def load(context):
    folder, part = Path(context.run_config["folder"]), int(context.node_config["part"])
    with np.load(folder / "digits.npz") as saved:
        rows = slice(300 * part, 300 * part + 300)
        return saved["images"][rows], saved["labels"][rows]


def table(context):
    images, labels = load(context)
    return {"ink": images.mean(axis=1), "digit": labels}


def records(context):
    """The second node lets the test kill it in its second round."""
    folder, part = Path(context.run_config["folder"]), int(context.node_config["part"])
    if part == 1 and (folder / "saved1").exists() and not (folder / "victim-is-dead").exists():
        (folder / "victim-trains").touch()
        time.sleep(3600)
    images, labels = load(context)
    images = images / np.linalg.norm(images, axis=1, keepdims=True)
    return torch.tensor(images, dtype=torch.float32), torch.tensor(labels)


class Watching:
    """A grid that says at once of the killed node what Flower says after a minute."""

    def __init__(self, grid, file):
        self.grid, self.file, self.sent, self.dead = grid, file, {}, None

    def __getattr__(self, name):
        return getattr(self.grid, name)

    def push_messages(self, messages):
        numbers = list(self.grid.push_messages(messages))
        self.sent = dict(zip(numbers, messages))
        return numbers

    def pull_messages(self, numbers):
        found = list(self.grid.pull_messages(numbers))
        for number in numbers if self.file.exists() and not found else ():
            node = self.sent[number].metadata.dst_node_id
            if self.dead is None and len(numbers) == 1:  # all others have answered
                self.dead = node
            if node == self.dead:
                reply = Message(Error(2, "the node is unavailable"), reply_to=self.sent[number])
                vars(reply.metadata)["_reply_to_message_id"] = number
                found.append(reply)
        return found


client = record_client(
    scheme, model=net, loss=cross_entropy, load=records, most_records=300, load_table=table,
    example=(torch.zeros(64), torch.tensor(0)),
)
server = ServerApp()


@server.main()
def main(grid, context):
    folder = Path(context.run_config["folder"])
    is_resumed = (folder / "run.pt").exists()
    if not is_resumed:
        answers = ask(grid, survey, trusted=folder / "trusted", min_available_nodes=4)
        (folder / "answers.json").write_text(json.dumps(answers.as_dict()))
        found = fit(grid, model, trusted=folder / "trusted", min_available_nodes=4)
        found.save(folder / "fit.json")
    strategy = RecordStrategy(
        scheme,
        model=net(),
        optimizer=lambda p: torch.optim.SGD(p, lr=4.0, momentum=0.5),
        trusted=folder / "trusted",
        min_available_nodes=3 if is_resumed else 4,
        checkpoint=folder / "run.pt",
        deadline=600.0,  # nobody is late on a busy machine
    )

    def keep(number, arrays):
        (folder / f"saved{number}").touch()
        if number == 2 and not is_resumed:
            time.sleep(3600)

    watching = grid if is_resumed else Watching(grid, folder / "victim-is-dead")
    result = strategy.start(watching, num_rounds=3, evaluate_fn=keep)
    report = {
        "hospitals": [len(r.entries) for r in strategy.reports],
        "failed": [f.code for r in strategy.reports for f in r.failed],
        "epsilon": strategy.epsilon,
        "dimension": strategy.dimension,
        "bytes": min(up for r in strategy.reports for up in r.bytes_up.values()),
        "largest": float(abs(result.arrays["weight"].numpy()).max()),
    }
    (folder / "partial").write_text(json.dumps(report))
    (folder / "partial").rename(folder / "report.json")
'''


CARELESS = """
import json
from pathlib import Path
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

client = ClientApp()
server = ServerApp()


def answer(msg, context):
    part, kind = context.node_config["part"], msg.metadata.message_type
    Path(context.run_config["folder"], f"{kind}-{part}").touch()
    content = {"arrays": ArrayRecord({"w": Array(np.full(3, 71.0))})}
    content |= {"metrics": MetricRecord({"age": 71}), "config": ConfigRecord({"name": "Smith"})}
    return Message(RecordDict(content), reply_to=msg)


def fail(msg, context):
    raise ValueError("Smith is 71")


client.train()(answer)
client.evaluate()(answer)
client.query()(fail)


@server.main()
def main(grid, context):
    told = {node: {} for node in grid.get_node_ids()}
    for kind in ("train", "evaluate", "query"):
        content = RecordDict({"arrays": ArrayRecord({"w": Array(np.zeros(3))})})
        messages = [Message(content, dst_node_id=node, message_type=kind) for node in told]
        for reply in grid.send_and_receive(messages, timeout=600):
            found = reply.error.reason if reply.has_error() else sorted(reply.content)
            told[reply.metadata.src_node_id][kind] = found
    folder = Path(context.run_config["folder"])
    (folder / "partial").write_text(json.dumps([*told.values()]))
    (folder / "partial").rename(folder / "report.json")
"""


def add_nodes(federation, folder, parts, **options):
    for part in parts:
        config = (
            f'jopeq-ledger="{folder}/{part}.json" jopeq-identity="{folder}/{part}.pem" '
            f'jopeq-trusted="{folder}/trusted" jopeq-max-epsilon=4.0 jopeq-max-delta=1e-5 '
            'jopeq-columns="ink, digit"'
        )
        federation.add_node(f"node{part}", part, 4, "honest", config, **options)


def make_hospitals(folder, count):
    keys = [write_identity(folder, part)[1] for part in range(count)]
    (folder / "trusted").write_text("\n".join(keys))
    for part in range(count):
        jopeq.Ledger.create(folder / f"{part}.json", 4.0, 1e-5)


def test_a_survey_and_a_fit_then_training_with_a_node_and_the_superlink_killed(tmp_path):
    """At last an app without the mod: from the guarded node, the last one, it sends nothing."""
    make_hospitals(tmp_path, 4)
    with deployment(tmp_path, app=APP.replace("**TERMS", f"**{TERMS}")) as federation:
        add_nodes(federation, tmp_path, range(4))
        federation.run()
        living = [federation.superlink, *federation.nodes.values()]
        wait_for((tmp_path / "victim-trains").exists, alive=living)
        federation.stop(federation.nodes["node1"], signal.SIGKILL)
        (tmp_path / "victim-is-dead").touch()
        wait_for((tmp_path / "saved2").exists, alive=[federation.superlink])
        for process in (federation.superlink, *federation.nodes.values()):
            federation.stop(process, signal.SIGKILL)
        federation.start_superlink("superlink-again")
        add_nodes(federation, tmp_path, (0, 1, 2))
        add_nodes(federation, tmp_path, (3,), guard=GUARD)
        federation.run()
        report = federation.report()
        ledgers = [jopeq.Ledger.load(tmp_path / f"{part}.json") for part in range(4)]
        (tmp_path / "app" / "digits" / "app.py").write_text(CARELESS)
        federation.run()
        told = federation.report()
    guarded = [one for one in told if "[settings]" in one["train"]]
    everything = ["arrays", "config", "metrics"]
    assert [(one["evaluate"], one["query"]) for one in guarded] == [([], [])]
    assert [one["evaluate"] for one in told if one not in guarded] == [everything] * 3
    assert "Smith" not in json.dumps(guarded)
    assert not (tmp_path / "train-3").exists()  # it was never loaded
    assert (tmp_path / "evaluate-3").exists()
    assert jopeq.Ledger.load(tmp_path / "3.json").rounds == ledgers[3].rounds
    assert report["hospitals"][:2] == [4, 3]
    assert set(report["hospitals"][2:]) <= {3, 4}
    assert report["largest"] > 1 / 8  # where weights start; steps of lr·z·C/batch leave it
    most = max(ledgers, key=lambda ledger: ledger.rounds)
    assert most.rounds >= 7  # the survey, two sums of the fit, three rounds, and the attempt whose
    *asked, trained = (run.spent.rounds for run in most.runs)  # node was killed
    assert (asked, trained) == ([1, 1, 1], most.rounds - 3)
    fitted = Fit.load(tmp_path / "fit.json")
    assert fitted.messages == 2
    assert abs(fitted.figures["records"] - 1200) < 300
    assert fitted.weights.any()
    scheme = jopeq.RecordSum(**TERMS)
    spent = epsilon_of((scheme.spend(report["dimension"], trained),), 1e-5, 4.0)
    assert report["epsilon"] == pytest.approx(spent)
    assert spent < most.spent.epsilon < spent + 0.5  # with those of survey and fit
    answers = json.loads((tmp_path / "answers.json").read_text())
    with np.load(tmp_path / "digits.npz") as saved:
        ink, digits = saved["images"][:1200].mean(), saved["labels"][:1200]
    assert abs(answers["ink"]["mean"]["value"] - ink) < 6 * answers["ink"]["mean"]["error"]
    share = {key: one["3"] for key, one in answers["digit"]["proportions"].items()}
    assert abs(share["value"] - np.mean(digits == 3)) < 6 * share["error"] < 0.3
    assert report["bytes"] < 10 * report["dimension"] / 8 + 1000
