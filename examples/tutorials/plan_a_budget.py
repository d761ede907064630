"""Plan a budget

How many people, how many bits, which ε? The library answers before anybody
trains. This tutorial asks it for one job: a linear model of handwritten digits
with 7,850 parameters. A few seconds.
"""

# %% First: of what is the ε?
# The same ε = 4 is three very different promises.
import matplotlib.pyplot as plt
import numpy as np

import jopeq
from jopeq.analysis.plan import plan
from jopeq_lab.pictures.colours import look_of

entries = 7850
per_entry = jopeq.Response(epsilon=4.0, rate=2.0, clip=0.03)
per_update = jopeq.Sphere(epsilon=4.0, clip=1.0)
per_client = jopeq.ClientSum(
    epsilon=4.0, clip=1.0, clients=100, threshold=80, rounds=20
)
for scheme in (per_entry, per_update, per_client):
    print(f"{scheme.name}: {scheme.guarantee}")

# %% What it becomes for a client
# An update has 7,850 entries, and a client takes part in 20 rounds. Only the
# last ε was of the client from the beginning.
composed = {
    "response": per_entry.guarantee.for_client(entries, rounds=20),
    "sphere": per_update.guarantee.for_client(entries, rounds=20),
    "clients": per_client.guarantee,
}
for name, guarantee in composed.items():
    print(f"{name:<9} ε = {guarantee.epsilon:>7,.0f} per {guarantee.unit}")

# %% What each entry costs
# The unbiased per-entry schemes whose ε holds, for ten clients: bits, and the
# error of the mean beside the energy of the update. Above 1, sending nothing is
# better.
rows = plan(4.0, rate=2.0, dimension=entries, clients=10)
for row in sorted(rows, key=lambda row: row.error):
    if row.unit == "sample" and row.per_sample <= 4.0 and row.bias == 0.0:
        bits = f"{row.bits_per_entry:5.2f} bits"
        print(f"{row.scheme.name:<13} {bits}   error {row.error:8.3f}")

# %% How many people does ε for a person need?
# The error of the mean falls with the number of people. Where it is below 1 a
# round begins to carry a signal; rounds average out further.
people = np.geomspace(10, 1e6, 26)
figure, axes = plt.subplots(figsize=(6, 3.8))
cohorts = (10, 20, 50, 100, 200, 500, 1000)
for epsilon, style in ((1.0, ":"), (4.0, "--"), (8.0, "-")):
    one = jopeq.Sphere(epsilon=epsilon, clip=1.0).expected_error(entries)
    colour, label = (
        look_of("sphere").colour,
        f"sphere, ε = {epsilon:g}",
    )
    axes.loglog(people, one / people, style, color=colour, label=label)
    sums = [
        jopeq.ClientSum(epsilon=epsilon, clip=1.0, clients=n, threshold=n)
        for n in cohorts
    ]
    errors = [scheme.expected_error(entries) for scheme in sums]
    colour, label = (
        look_of("clients").colour,
        f"clients, ε = {epsilon:g}",
    )
    axes.loglog(cohorts, errors, style, color=colour, label=label)
axes.axhline(1.0, color="black", lw=0.5)
axes.text(1.1e6, 1.0, "as large as\nthe signal", va="center")
axes.set(xlabel="people in a round", ylabel="error of the mean, of clip²")
axes.legend(frameon=False, fontsize=8)
axes.spines[["top", "right"]].set_visible(False)
figure.savefig("people.svg", bbox_inches="tight")

# %% Have the budget kept
# A ledger charges an update before it looks at it, and refuses what does not
# fit. Here it allows ε = 10: two reports of ε = 4, and no third.
ledger = jopeq.Ledger(budget=10.0)
update = np.zeros(entries, np.float32)
try:
    while True:
        ledger.encode(per_update, update)
        print(f"sent: ε = {ledger.spent.epsilon:.3g} is spent")
except jopeq.BudgetExceededError as refused:
    print(f"refused: {refused}")
