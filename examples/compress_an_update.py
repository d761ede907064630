"""Compress an update: bits, error and privacy of one client's update. A few seconds.

    python examples/compress_an_update.py

Every cell (`# %%`) can be run by itself in an editor that knows them.
"""

# %% An update: 7,850 numbers, as a linear model of MNIST has
import numpy as np

import jopeq

rng = np.random.default_rng(0)
update = rng.normal(0.0, 0.01, 7850).astype(np.float32)
print(f"raw: {update.nbytes:,} bytes")

# %% Compressed: two bits a number. No privacy yet, and it says so
sdq = jopeq.scheme("sdq", rate=2.0)
payload = sdq.encode(update)
decoded = sdq.decode(payload)
error = np.sum((decoded - update) ** 2) / np.sum(update**2)
print(f"sdq: {len(payload):,} bytes, error {error:.3f} of the energy")
print(f"     {sdq.guarantee}")

# %% Compressed and private: a public clip, so that not even the norm is given away
response = jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=0.03)
payload, counts = response.encode(update, counts=True)
decoded = response.decode(payload)
error = np.sum((decoded - update) ** 2) / np.sum(update**2)
print(f"response: {len(payload):,} bytes, error {error:.3f}, clipped {counts.clipped} numbers")
print(f"     {response.guarantee}")
print(f"     {response.guarantee.for_update(update.size)}")

# %% One update is noisy; that is what averaging is for
for clients in (1, 10, 100):
    payloads = [response.encode(update) for _ in range(clients)]
    mean = jopeq.aggregate(payloads, scheme=response, like=update)
    error = np.sum((mean - update) ** 2) / np.sum(update**2)
    print(f"mean of {clients:>3}: error {error:.4f}")

# %% The paper's scheme, and what it really spends
report = jopeq.audit(jopeq.scheme("jopeq", epsilon=4.0, rate=1.0), draws=20_000)
print(f"jopeq at one bit: asked for ε = {report.nominal:g}, spends {report.exact.server:.2f}")

# %% Payloads defend themselves
broken = bytearray(payload)
broken[-10] ^= 1
try:
    response.decode(bytes(broken))
except jopeq.PayloadError as refused:
    print(f"a flipped bit: {refused}")
