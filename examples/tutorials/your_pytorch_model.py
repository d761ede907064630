"""Your PyTorch model in ten minutes

You have a PyTorch model and a training loop. This tutorial sends what clients
learn through jopeq: first compressed, then private for single entries, then
private for whole clients. It takes a minute to run and downloads nothing.
"""

# %% A model, and data that fifty clients hold
# Nothing here knows of jopeq. The data are 1,797 handwritten digits of 8 × 8
# pixels; each client has about 29 of them. Take your own model and your own
# data: any `nn.Module` will do.
import copy
import os

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

import jopeq
from jopeq_lab.pictures.colours import look_of
from jopeq_lab.training.data import load
from jopeq_lab.training.partition import partition

torch.manual_seed(0)
torch.set_num_threads(1)
digits = load("digits")
parts = partition(digits.train_labels, 50, seed=0)
model = nn.Sequential(
    nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)
)
entries = sum(value.numel() for value in model.parameters())
print(f"{entries:,} parameters, {4 * entries:,} bytes as float32")


def train(model, part, steps=5):
    """What one client does: a few steps of SGD on its own images."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    inputs, labels = digits.train_inputs[part], digits.train_labels[part]
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return model.state_dict()


def accuracy(model):
    """In percent, on images that no client has."""
    with torch.no_grad():
        found = model(digits.test_inputs).argmax(1)
    return 100 * (found == digits.test_labels).float().mean().item()


# %% Federated averaging through a scheme
# Three calls are jopeq's. `state_update` takes the difference of two states,
# `scheme.encode` makes it a payload, and `aggregate` turns all payloads into
# their mean. A payload is bytes: send them any way you like.
def federate(scheme, rounds=8):
    """Accuracy after each round, and the bytes of one payload."""
    shared, history = copy.deepcopy(model), []
    for _ in range(rounds):
        received, payloads = shared.state_dict(), []
        for part in parts:  # on fifty devices
            trained = train(copy.deepcopy(shared), part)
            update = jopeq.state_update(received, trained)
            payloads.append(scheme.encode(update))
        mean = jopeq.aggregate(payloads, scheme=scheme, like=received)
        shared.load_state_dict(jopeq.updated_state(received, mean))
        history.append(accuracy(shared))
    return history, len(payloads[0])


histories = {}
histories["none"], size = federate(jopeq.Uncompressed())
print(f"none: {histories['none'][-1]:.1f}% with {size:,} bytes a client")

# %% Compressed: two bits an entry
# The same loop with another scheme. `sdq` promises no privacy, and says so.
scheme = jopeq.scheme("sdq", rate=2.0)
histories["sdq"], size = federate(scheme)
print(f"sdq: {histories['sdq'][-1]:.1f}% with {size:,} bytes a client")
print(scheme.guarantee)

# %% Private, entry by entry
# `response` has an ε for each entry of an update; the clip is public. Read the
# second sentence: over all entries ε adds up, and promises a client nothing.
scheme = jopeq.Response(epsilon=4.0, rate=2.0, clip=0.1)
histories["response"], size = federate(scheme)
print(f"response: {histories['response'][-1]:.1f}%, {size:,} bytes a client")
print(scheme.guarantee)
print(scheme.guarantee.for_update(entries))

# %% Private for the client
# What clients need is an ε for everything that they send. Fifty clients are
# enough for it if the server learns only sums. `ClientSum` makes integers that
# are private once they are added up. Here we add them ourselves; in the
# tutorial [Secure aggregation](secure_aggregation.md) masks hide them.
secure = jopeq.ClientSum(
    epsilon=8.0, clip=1.5, clients=50, threshold=50, rounds=8
)
plan = secure.plan(entries)
shared = copy.deepcopy(model)
histories["clients"] = []
for _ in range(secure.rounds):
    received = nn.utils.parameters_to_vector(shared.parameters()).detach()
    seed, total = os.urandom(32), np.zeros(entries, int)
    for part in parts:
        trained = copy.deepcopy(shared)
        train(trained, part)
        update = nn.utils.parameters_to_vector(trained.parameters()) - received
        total += secure.encode(update.detach(), seed=seed)
    mean = secure.decode(total, seed=seed, dimension=entries, clients=50)
    nn.utils.vector_to_parameters(
        received + torch.from_numpy(mean), shared.parameters()
    )
    histories["clients"].append(accuracy(shared))
size = (plan.payload_bits + 7) // 8
print(f"clients: {histories['clients'][-1]:.1f}%, {size:,} bytes a client")
print(secure.guarantee)

# %% Accuracy of all four, round by round
# All four learn. They differ in what they send and in what they promise.
figure, axes = plt.subplots(figsize=(6, 3.5))
for name, history in histories.items():
    look, rounds = look_of(name), range(1, len(history) + 1)
    axes.plot(rounds, history, look.marker + "-", color=look.colour, label=name)
axes.set(xlabel="round", ylabel="test accuracy, %")
axes.legend(frameon=False)
axes.spines[["top", "right"]].set_visible(False)
figure.savefig("accuracy.svg", bbox_inches="tight")
