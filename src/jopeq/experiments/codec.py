"""What every scheme does to an update: bits, bytes, error and ε, computed and measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.randomness import PrivateStream, SharedStream
from jopeq.schemes import Scheme, scheme

EPSILONS = (1.0, 2.0, 4.0)
RATES = (1.0, 2.0, 4.0, 8.0)
_CENTRE_SAMPLES = 1 << 17


@dataclass(frozen=True)
class CodecRow:
    """One scheme on one update."""

    scheme: Scheme
    payload_bytes: int
    bits_per_entry: float
    distortion: float  # computed, at the centre
    measured: float  # the same, measured
    normalised_error: float  # E‖h̃ − h‖² / ‖h‖² on the update
    overload_rate: float


def paper_schemes() -> Iterator[Scheme]:
    """Every scheme of the paper over ε ∈ {1, 2, 4} and R ∈ {1, 2, 4, 8}."""
    yield scheme("none")
    for rate in RATES:
        yield scheme("sdq", rate=rate)
        yield scheme("dq", rate=rate)
        yield scheme("sdq", rate=rate, lattice="A2")
    for epsilon in EPSILONS:
        yield scheme("laplace", epsilon=epsilon)
        yield scheme("t", epsilon=epsilon)
        for rate in RATES:
            for name, lattice in (
                ("laplace+sdq", "Z"),
                ("jopeq", "Z"),
                ("t+sdq", "A2"),
                ("jopeq", "A2"),
            ):
                yield scheme(name, epsilon=epsilon, rate=rate, lattice=lattice)


def all_schemes() -> Iterator[Scheme]:
    """The paper's schemes and, beside them, those with a proof against the server."""
    yield from paper_schemes()
    for epsilon in EPSILONS:
        yield scheme("staircase", epsilon=epsilon)
        for rate in RATES:
            if rate in (1.0, 2.0, 4.0):
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
        measured=centre_distortion(coded),
        normalised_error=float(np.square(error).sum()) / energy if energy else 0.0,
        overload_rate=counted.overloaded / counted.samples if counted.samples else 0.0,
    )


def centre_distortion(coded: Scheme, samples: int = _CENTRE_SAMPLES) -> float:
    """Mean squared error per entry of samples at the centre of the ball, in scaled units."""
    centre = np.zeros((samples, coded.dimension))
    shared = SharedStream(PrivateStream().read(lane=0, start=0, count=32).tobytes())
    symbols = coded._to_symbols(centre, 0, shared, PrivateStream())
    return float(np.square(coded._to_samples(symbols.values, 0, shared)).mean())
