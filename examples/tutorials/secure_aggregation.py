"""Secure aggregation

Twenty hospitals know something together that none of them may tell. The server
gets their sum and nothing else, even if two hospitals drop out in the middle.
This tutorial takes one such sum by hand, message by message; in Flower two
lines do the same ([a hundred hospitals](../hospitals.md)). A few seconds.
"""

# %% Updates, and terms that all agree on
# Each hospital has an update of 200 entries. The scheme says who may learn
# what: ε and δ are of a whole hospital, a sum of fewer than 15 is never opened.
import os

import matplotlib.pyplot as plt
import numpy as np

import jopeq
from jopeq.circle import Client, Server, Terms
from jopeq_lab.pictures.colours import look_of

rng = np.random.default_rng(0)
signal = np.sin(np.linspace(0, 4 * np.pi, 200)) / 12
updates = signal + rng.normal(0, 0.02, (20, 200))
scheme = jopeq.ClientSum(
    epsilon=8.0, delta=1e-5, clip=1.0, clients=20, threshold=15
)
plan = scheme.plan(200)
print(scheme.guarantee)
print(f"{plan.bits} bits per entry")

# %% Step 1: keys
# The server offers terms, every hospital answers with two fresh public keys.
# A hospital checks that the terms are the ones it agreed to.
terms = Terms(
    spec=f"{scheme.spec} of 200 entries",
    bits=plan.bits,
    length=200,
    clients=scheme.clients,
    threshold=scheme.threshold,
)
server = Server(terms)
hospitals = {number: Client(terms, number) for number in range(1, 21)}
keys = {me: one.keys(server.offer) for me, one in hospitals.items()}
roster = server.roster(keys.items())
print(f"{len(roster)} hospitals in the roster, {len(keys[1])} bytes from each")

# %% Step 2: shares of secrets
# Each hospital splits its secrets into shares, one sealed box for each other
# hospital. Fifteen shares open a secret, fourteen say nothing about it.
shares = {me: hospitals[me].shares(roster[me]) for me in roster}
inboxes = server.inboxes(shares.items())
print(f"{len(shares[1]):,} bytes from each hospital")

# %% Step 3: masked updates
# `scheme.encode` rounds the update by the hospital's part of the noise, to a
# few bits. `masked` adds masks that cancel in the sum. Hospitals 7 and 12 lose
# their connection here.
seed = os.urandom(32)  # of the round, public
masked, encoded = {}, {}
for me, inbox in inboxes.items():
    hospitals[me].receive(inbox)
    encoded[me] = scheme.encode(updates[me - 1], seed=seed)
    masked[me] = hospitals[me].mask(encoded[me])
del masked[7], masked[12]
survivors = server.survivors(masked.items())
print(f"{len(masked[1]):,} bytes from each of {len(masked)} hospitals")

# %% Step 4: open the sum
# The others send the shares that take away the masks that are left over, those
# of the two that are gone among them. The server learns the sum, mod 2^bits.
opened = {me: hospitals[me].open(survivors[me]) for me in survivors}
total = server.total(opened.items())
there = server.alive
mean = scheme.decode(total, seed=seed, dimension=200, clients=len(there))
true = updates[np.array(there) - 1].mean(axis=0)
error = np.sum((mean - true) ** 2)
print(f"the mean of {len(there)} hospitals, error {error:.3f} of clip²")
print(f"expected: {scheme.expected_error(200, clients=len(there)):.3f}")

# %% What the server sees of one hospital, and of all
# Left: what hospital 1 sent is uniform, whatever its update was. Right: the
# mean that the server decoded, beside the true one. The noise is what ε asks
# for.
sent = np.frombuffer(masked[1], np.uint8)[22:]  # without the header
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2))
left.plot(sent, "o", color=look_of("none").colour, ms=3)
left.set(xlabel="byte", ylabel="value", title="what one hospital sent")
right.plot(mean, "o", color=look_of("clients").colour, ms=3, label="decoded")
right.plot(true, color=look_of("none").colour, label="true")
right.set(xlabel="entry", title=f"the mean of {len(there)} hospitals")
right.legend(frameon=False)
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
figure.tight_layout()
figure.savefig("sum.svg")
