"""Secure sums: the cost of an entry, and its error relative to a central Gaussian.

    PYTHONPATH=src python benchmarks/secure_encoders.py

``encoders`` compares ``ClientSum`` with the distributed discrete Gaussian (Kairouz, Liu, Steinke
2021) and Skellam noise (Agarwal, Kairouz, Liu 2021), each with its own accounting, for the same
(ε, δ), the same clients, all of whom are in the sum, and the same number of bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from dp_accounting import get_sigma_gaussian

import jopeq
from jopeq import kernels
from jopeq.random.streams import SharedStream
from jopeq.sums.shares import rotate
from timing import best_seconds, cores, load, machine

Accounting = Callable[[float, float, int, int], float]

EPSILON, DELTA = 4.0, 1e-5
_BETA = math.exp(-0.5)  # of conditional rounding, as published
_REACH = 4.0  # standard deviations that the modulus holds, as published
_SETTINGS = (
    (10, 10**5),
    (100, 10**4),
    (100, 10**6),
    (1000, 10**5),
    (1000, 10**6),
)  # clients, entries
_BITS = (6, 7, 8, 9, 10, 12, 14, 16, 18)
_TIMED = 10**6


def rounded_norm(scaled: float, entries: int) -> float:
    """The ℓ2 norm that conditional stochastic rounding to integers allows (both papers)."""
    slack = math.sqrt(2.0 * math.log(1.0 / _BETA)) * (scaled + 0.5 * math.sqrt(entries))
    return math.sqrt(min((scaled + math.sqrt(entries)) ** 2, scaled**2 + entries / 4.0 + slack))


def discrete_gaussian_epsilon(scaled: float, sigma: float, clients: int, entries: int) -> float:
    """ε at δ for shares of standard deviation ``sigma``, in integer units (Theorem 1 there)."""
    norm = rounded_norm(scaled, entries)
    parts = np.arange(1, clients) / np.arange(2, clients + 1)
    tau = 10.0 * float(np.exp(-2 * math.pi**2 * sigma**2 * parts).sum())
    first = norm**2 / (clients * sigma**2) + 0.5 * tau * entries
    second = (norm / (math.sqrt(clients) * sigma) + tau * math.sqrt(entries)) ** 2
    square = min(first, second)
    return least_epsilon(lambda order: 0.5 * order * square, 1.0 + np.geomspace(1e-3, 1e4, 3000))


def skellam_epsilon(scaled: float, sigma: float, clients: int, entries: int) -> float:
    """ε of Skellam shares of that variance (Theorem 3.5 there), over integer orders."""
    norm = rounded_norm(scaled, entries)
    one, variance = min(norm * math.sqrt(entries), norm**2), clients * sigma**2

    def divergence(order: Any) -> Any:
        more = ((2 * order - 1) * norm**2 + 6 * one) / (4 * variance**2)
        return order * norm**2 / (2 * variance) + np.minimum(more, 1.5 * one / variance)

    return least_epsilon(divergence, np.arange(2.0, 200.0))


def least_epsilon(divergence: Callable[[Any], Any], orders: Any) -> float:
    """ε at δ of Rényi divergences of these orders (Canonne, Kamath, Steinke 2020, Prop. 12)."""
    rest = np.log1p(-1 / orders) - np.log(orders * DELTA) / (orders - 1)
    return max(0.0, float((divergence(orders) + rest).min()))


@cache
def share_sigma(epsilon_of: Accounting, scaled: float, clients: int, entries: int) -> float:
    """The least standard deviation of a share that keeps ε, in integer units."""
    low, high = 0.05, 1e7
    for _ in range(40):
        middle = math.sqrt(low * high)
        good = epsilon_of(scaled, middle, clients, entries) <= EPSILON
        low, high = (low, middle) if good else (middle, high)
    return high


def rounding_first(epsilon_of: Accounting, bits: int, clients: int, entries: int) -> float | None:
    """The error relative to a central Gaussian's, at the best scale that 2^bits holds."""
    central = 1.0 / largest_mu() ** 2  # of the sum, in units of C²
    best = None
    for power in np.arange(-2.0, 16.0, 0.25).tolist():
        scaled = 2.0**power  # C in integer units
        sigma = share_sigma(epsilon_of, scaled, clients, entries)
        noise = clients * (sigma**2 + 0.25)
        deviation = math.sqrt((clients * scaled) ** 2 / entries + noise)
        if _REACH * deviation > 2.0 ** (bits - 1):
            continue
        ratio = noise / scaled**2 / central
        best = ratio if best is None else min(best, ratio)
    return best


def largest_mu() -> float:
    return 1.0 / float(get_sigma_gaussian(EPSILON, DELTA))


def ours(bits: int, clients: int, entries: int) -> float | None:
    given = {"epsilon": EPSILON, "delta": DELTA, "clip": 1.0, "clients": clients}
    scheme = jopeq.ClientSum(**given, threshold=clients, colluding=0, bits=bits)
    try:
        return scheme.plan(entries).price
    except ValueError:  # 2^bits cannot hold the sum
        return None


def discrete_gaussian(rng: np.random.Generator, sigma: float, count: int) -> np.ndarray:
    """Canonne, Kamath, Steinke 2020, in floats: discrete Laplace draws, some of them rejected."""
    scale = math.floor(sigma) + 1
    out, filled = np.empty(count, dtype=np.int64), 0
    while filled < count:
        draws = 2 * (count - filled) + 64
        chance = -math.expm1(-1.0 / scale)
        values = rng.geometric(chance, draws) - rng.geometric(chance, draws)
        keep = np.exp(-((np.abs(values) - sigma**2 / scale) ** 2) / (2 * sigma**2))
        found = values[rng.random(draws) < keep][: count - filled]
        out[filled : filled + len(found)] = found
        filled += len(found)
    return out


def speeds() -> dict[str, float]:
    """Entries a second of whole encoders, 100 clients; others with NumPy's generators."""
    update = (np.random.default_rng(0).standard_normal(_TIMED) * 1e-3).astype(np.float32)
    given = {"epsilon": EPSILON, "delta": DELTA, "clip": 1.0, "clients": 100, "threshold": 100}
    scheme = jopeq.ClientSum(**given, largest_mean=0.3)
    seed, rng = bytes(32), np.random.default_rng(1)
    scheme.encode(update, seed=seed)  # plans, and fills tables
    shared = SharedStream(seed)

    def rounds_first(noise: Callable[[], Any]) -> Callable[[], Any]:
        def encode() -> Any:
            flat = update.astype(np.float64)
            flat = rotate(flat, 50.0 / max(1.0, float(np.linalg.norm(flat))), shared)
            rounded = np.floor(flat + rng.random(_TIMED)).astype(np.int64)
            return ((rounded + noise()) & 255).astype(np.uint8)

        return encode

    variance = 1.3**2
    ways: dict[str, Callable[[], Any]] = {
        "ClientSum": lambda: scheme.encode(update, seed=seed),
        "discrete Gaussian": rounds_first(lambda: discrete_gaussian(rng, 1.3, _TIMED)),
        "Skellam": rounds_first(
            lambda: rng.poisson(variance / 2, _TIMED) - rng.poisson(variance / 2, _TIMED)
        ),
    }
    return {name: _TIMED / best_seconds(work) for name, work in ways.items()}


def measured_error(clients: int = 50, entries: int = 20_000, bits: int = 8) -> float:
    """Measure the error of really drawn and summed shares, relative to a central Gaussian."""
    given = {"epsilon": EPSILON, "delta": DELTA, "clip": 1.0, "clients": clients}
    scheme = jopeq.ClientSum(**given, threshold=clients, colluding=0, bits=bits)
    rng, seed = np.random.default_rng(2), bytes(32)
    updates = rng.standard_normal((clients, entries))
    updates /= np.linalg.norm(updates, axis=1, keepdims=True)
    total = sum(scheme.encode(update, seed=seed).astype(np.int64) for update in updates)
    mean = scheme.decode(total, seed=seed, dimension=entries, clients=clients)
    error = float(np.square(mean - updates.mean(axis=0)).sum())
    return error / scheme.plan(entries).central_error


def encoders() -> None:
    """Error relative to a central Gaussian by bits, and speed, of three mechanisms."""
    ways = {
        "ClientSum": ours,
        "discrete Gaussian": lambda *job: rounding_first(discrete_gaussian_epsilon, *job),
        "Skellam": lambda *job: rounding_first(skellam_epsilon, *job),
    }
    print(f"error ÷ a central Gaussian's, ε = {EPSILON:g}, δ = {DELTA:g}, all entries sent\n")
    print("| clients | entries | mechanism | " + " | ".join(f"{b} bits" for b in _BITS) + " |")
    print("|---|---|---|" + "---|" * len(_BITS))
    for clients, entries in _SETTINGS:
        for name, way in ways.items():
            cells = []
            for bits in _BITS:
                found = way(bits, clients, entries)
                cells.append("–" if found is None or found > 100 else f"{found:.3f}")
            print(f"| {clients:,} | {entries:,} | {name} | " + " | ".join(cells) + " |")
    print(f"\nmeasured, 50 clients, 20,000 entries, 8 bits: {measured_error():.3f}\n")
    kernels.use("on")
    print(
        f"| encoder, {_TIMED:,} entries, {cores()} cores, load {load()} | M entries/s |\n|---|---|"
    )
    for name, speed in speeds().items():
        print(f"| {name} | {speed / 1e6:.1f} |")
    kernels.use("off")
    print(f"| ClientSum, plain path | {speeds()['ClientSum'] / 1e6:.1f} |")
    kernels.use(None)


if __name__ == "__main__":
    print(machine())
    encoders()
