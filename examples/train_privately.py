"""Train privately: ten clients, real digits, and a budget that is kept. Half a minute.

python examples/train_privately.py
"""

# %% A federation: 1,797 digits of 8 × 8 pixels, ten clients, a linear model
import numpy as np

import jopeq
from jopeq.federated.simulation import TrainConfig, train

common = {
    "data": "digits",
    "model": "linear",
    "clients": 10,
    "rounds": 15,
    "local_steps": 20,
    "lr": 0.5,
    "compile": "off",
    "threads": 1,
}
schemes = {
    "raw": jopeq.scheme("none"),
    "2 bits": jopeq.scheme("sdq", rate=2.0),
    "2 bits, ε = 4 per number": jopeq.scheme(
        "response", epsilon=4.0, rate=2.0, spread="auto", clients=10
    ),
}

# %% Train with each: every update really goes through bytes
for label, scheme in schemes.items():
    result = train(TrainConfig(scheme=scheme, **common))
    last = result.history[-1]
    print(
        f"{label:<26} test accuracy {100 * result.test_accuracy:.1f}%, "
        f"{last.bytes_per_client:,.0f} bytes per client and round"
    )

# %% What that is worth. ε is per number; a client's numbers and rounds add up
guarantee = schemes["2 bits, ε = 4 per number"].guarantee
print(guarantee)
print(f"one client, all rounds: ε = {guarantee.for_client(650, rounds=15).epsilon:,.0f}")

# %% Privacy of whole updates is another price. Ask before training
whole = jopeq.Sphere(epsilon=8.0, clip=1.0)
for clients in (10, 1000, 10_000):
    error = whole.expected_error(650) / clients
    print(f"ε = 8 per update, {clients:>6,} clients: error {error:.3f} of the energy of the mean")

# %% And have the budget kept by a ledger: beyond it nothing is encoded
ledger = jopeq.Ledger(budget=20.0)
update = np.zeros(650, dtype=np.float32)
try:
    while True:
        ledger.encode(whole, update)
except jopeq.BudgetExceededError:
    print(f"the ledger stopped after {ledger.rounds} updates, ε = {ledger.spent.epsilon:.3g} spent")
