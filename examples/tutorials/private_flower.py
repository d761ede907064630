"""A private federation in Flower

Thirty hospitals train one model with [Flower](https://flower.ai). Two lines
make the run private: ε = 8 holds for everything that a hospital ever sends, and
the server learns sums only. The program below is a whole run, in one process
and without a network; it takes half a minute.
"""

# %% A Flower app, as you would write it
# The client trains on its own digits and returns the model. Nothing here knows
# of jopeq.
import logging
import os
import tempfile

os.environ["FLWR_HOME"] = tempfile.mkdtemp()  # clients keep their ledgers here

import matplotlib.pyplot as plt
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity
from torch import nn

import jopeq
from jopeq.flower import SumMod, SumStrategy
from jopeq_lab.pictures.colours import look_of
from jopeq_lab.training.data import load
from jopeq_lab.training.partition import partition

torch.manual_seed(0)
torch.set_num_threads(1)
digits = load("digits")
parts = partition(digits.train_labels, 30, seed=0)


def new_model():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def train(message, context):
    """Local training from the server's model."""
    model = new_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    mine = parts[context.node_config["partition-id"]]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(10):
        optimizer.zero_grad()
        scores, truth = model(digits.train_inputs[mine]), digits.train_labels
        nn.functional.cross_entropy(scores, truth[mine]).backward()
        optimizer.step()
    metrics = MetricRecord({"num-examples": len(mine)})
    arrays = ArrayRecord(model.state_dict())
    content = RecordDict({"arrays": arrays, "metrics": metrics})
    return Message(content=content, reply_to=message)


def evaluate(server_round, arrays):
    """Test accuracy of the global model, on the server."""
    model = new_model()
    model.load_state_dict(arrays.to_torch_state_dict())
    with torch.no_grad():
        found = model(digits.test_inputs).argmax(1)
    share = (found == digits.test_labels).float().mean().item()
    return MetricRecord({"accuracy": share})


# %% A network in one process
# Flower's SuperLink and SuperNodes carry messages between machines. This class
# hands them over in one process, so that the tutorial needs no network. Leave
# it out of an app of your own, and start that with `flwr run`.
TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
logging.getLogger("flwr").setLevel(logging.CRITICAL)


class LocalGrid:
    """Thirty nodes that all run the same app."""

    def __init__(self, app):
        self.app = app
        self.contexts = {
            node: Context(1, node, {"partition-id": node - 2}, RecordDict(), {})
            for node in range(2, 32)
        }

    def get_node_ids(self):
        return list(self.contexts)

    def answer(self, message):
        return self.app(message, self.contexts[message.metadata.dst_node_id])

    def send_and_receive(self, messages, *, timeout=None):
        return [self.answer(message) for message in messages]

    def push_messages(self, messages):
        self.replies = {str(n): self.answer(m) for n, m in enumerate(messages)}
        for number, reply in self.replies.items():
            vars(reply.metadata)["_reply_to_message_id"] = number
        return list(self.replies)

    def pull_messages(self, numbers):
        return [self.replies.pop(number) for number in numbers]


def run(strategy, app, rounds):
    """Accuracy after each round, in percent."""
    result = strategy.start(
        LocalGrid(app),
        initial_arrays=ArrayRecord(new_model().state_dict()),
        num_rounds=rounds,
        evaluate_fn=evaluate,
    )
    rounds = result.evaluate_metrics_serverapp.values()
    return [100 * metrics["accuracy"] for metrics in rounds]


# %% Without privacy
app = ClientApp()
app.train()(train)
plain = run(FedAvg(fraction_evaluate=0.0), app, rounds=6)
print(f"FedAvg: {plain[-1]:.1f}% after {len(plain) - 1} rounds")

# %% With two lines
# The mod goes to the client, the wrapper to the server. Both get the same
# scheme; a hospital refuses a server that has another one.
scheme = jopeq.ClientSum(
    epsilon=8.0, clip=2.0, clients=30, threshold=25, rounds=6
)
app = ClientApp(mods=[SumMod(scheme, unsigned=True)])  # no keys: a simulation
app.train()(train)
strategy = SumStrategy(FedAvg(fraction_evaluate=0.0), scheme, unsigned=True)

private = run(strategy, app, rounds=6)
print(f"the same, private: {private[-1]:.1f}%")
print(scheme.guarantee)

# %% Accuracy, round by round
figure, axes = plt.subplots(figsize=(6, 3.5))
for label, name, history in (
    ("FedAvg", "none", plain),
    ("FedAvg, secure sum, ε = 8 for the hospital", "clients", private),
):
    look = look_of(name)
    axes.plot(history, look.marker + "-", color=look.colour, label=label)
axes.set(xlabel="round", ylabel="test accuracy, %")
axes.legend(frameon=False)
axes.spines[["top", "right"]].set_visible(False)
figure.savefig("accuracy.svg", bbox_inches="tight")

# %% What the server was told
# The strategy reports each round: what it received, and the ε that each
# hospital has spent so far.
for report in strategy.reports:
    size, epsilon = report.bytes_up[2], report.epsilon[2]
    print(
        f"round {report.server_round}: {len(report.bytes_up)} hospitals, "
        f"{size:,} bytes from each, ε = {epsilon:.3g}"
    )

# %% A hospital keeps its budget
# ε = 8 was for six rounds. Every hospital has a ledger, a file that outlives
# runs and restarts. All of them refuse the seventh round, whoever asks, before
# anybody has computed anything, and the run ends with the model it began with.
again = SumStrategy(FedAvg(fraction_evaluate=0.0), scheme, unsigned=True)
run(again, app, rounds=1)
print(again.reports[-1].failed[0])
