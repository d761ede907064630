"""One client's update through every scheme: bits, bytes and errors, computed and measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.random import portable
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.registry import scheme
from jopeq.schemes.base import Scheme

EPSILONS = (1.0, 2.0, 4.0)
RATES = (1.0, 2.0, 4.0, 8.0)
_CENTRE_SAMPLES = 1 << 17
CLASSES, PIXELS = 10, 784
STEPS, BATCH, LEARNING_RATE, MOMENTUM = 100, 16, 0.1, 0.5


@dataclass(frozen=True)
class CodecRow:
    """One scheme on one update."""

    scheme: Scheme
    payload_bytes: int
    bits_per_entry: float
    distortion: float  # computed, at the centre
    measured: float | None  # the same, measured; None for schemes of whole updates
    normalised_error: float  # E‖h̃ − h‖² / ‖h‖² on the update
    overload_rate: float

    def as_dict(self) -> dict[str, Any]:
        """The row under the names that its JSON has."""
        guarantee = self.scheme.guarantee
        return {
            "scheme": self.scheme.spec,
            "name": self.scheme.name,
            "payload_bytes": self.payload_bytes,
            "bits_per_entry": self.bits_per_entry,
            "distortion": self.distortion,
            "distortion_measured": self.measured,
            "normalised_error": self.normalised_error,
            "overload_rate": self.overload_rate,
            "unit": guarantee.unit,
            "epsilon_nominal": guarantee.nominal,
            "epsilon": guarantee.epsilon,
            "delta": guarantee.delta,
        }


def all_schemes() -> Iterator[Scheme]:
    """The paper's schemes, then those with a proof against the server, over all ε and R."""
    yield scheme("none")
    for rate in RATES:
        yield scheme("sdq", rate=rate)
        yield scheme("dq", rate=rate)
        yield scheme("sdq", rate=rate, lattice="A2")
    for epsilon in EPSILONS:
        yield scheme("laplace", epsilon=epsilon)
        yield scheme("t", epsilon=epsilon)
        for rate in RATES:
            yield scheme("laplace+sdq", epsilon=epsilon, rate=rate)
            yield scheme("jopeq", epsilon=epsilon, rate=rate)
            yield scheme("t+sdq", epsilon=epsilon, rate=rate, lattice="A2")
            yield scheme("jopeq", epsilon=epsilon, rate=rate, lattice="A2")
    for epsilon in EPSILONS:
        yield scheme("staircase", epsilon=epsilon)
        for rate in RATES:
            if rate <= 4.0:
                yield scheme("mvu", epsilon=epsilon, rate=rate)
            yield scheme("response", epsilon=epsilon, rate=rate)


def codec_row(coded: Scheme, update: NDArray[Any]) -> CodecRow:
    """Encode and decode ``update``, and measure."""
    payload, counted = coded.encode(update, statistics=True)
    error = coded.decode(payload).astype(np.float64) - update
    energy = float(np.square(update, dtype=np.float64).sum())
    return CodecRow(
        scheme=coded,
        payload_bytes=len(payload),
        bits_per_entry=counted.bits_per_entry,
        distortion=coded.distortion,
        measured=None if coded.guarantee.unit == "update" else centre_distortion(coded),
        normalised_error=float(np.square(error).sum()) / energy if energy else 0.0,
        overload_rate=counted.overloaded / counted.samples if counted.samples else 0.0,
    )


def centre_distortion(coded: Scheme, samples: int = _CENTRE_SAMPLES) -> float:
    """Mean squared error per entry of samples at the centre of the ball, in scaled units."""
    centre = np.zeros((samples, coded.dimension))
    shared = SharedStream(PrivateStream().read(lane=0, start=0, count=32).tobytes())
    symbols = coded.to_letters(centre, 0, shared, PrivateStream())
    return float(np.square(coded.to_samples(symbols.values, 0, shared)).mean())


def example_update(key: bytes = bytes(32)) -> NDArray[np.float32]:
    """The change of a linear softmax model's 7,850 weights and biases after one client's training.

    The task is synthetic (ten Gaussian classes of 784 pixels, drawn from a fixed stream), the
    training is real: 100 steps of SGD with momentum, as in the paper's setting.

    >>> example_update().shape
    (7850,)
    """
    stream = PrivateStream.reproducible(key)
    centres = portable.normal(stream, 0, CLASSES * PIXELS).reshape(CLASSES, PIXELS)
    # real images have dark borders and bright centres: so do these
    brightness = np.outer(np.hanning(28), np.hanning(28)).reshape(-1)
    weights = np.zeros((CLASSES, PIXELS + 1))
    velocity = np.zeros_like(weights)
    for step in range(STEPS):
        labels = (portable.uniform(stream, step * BATCH, BATCH, lane=8) * CLASSES).astype(int)
        labels = np.minimum(labels, CLASSES - 1)
        pixels = portable.normal(stream, step * BATCH * PIXELS, BATCH * PIXELS, lane=9)
        images = brightness * (0.4 * centres[labels] + pixels.reshape(BATCH, PIXELS))
        inputs = np.concatenate((images, np.ones((BATCH, 1))), axis=1)
        scores = inputs @ weights.T
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        chances[np.arange(BATCH), labels] -= 1.0
        velocity = MOMENTUM * velocity + chances.T @ inputs / BATCH
        weights -= LEARNING_RATE * velocity
    return weights.reshape(-1).astype(np.float32)
