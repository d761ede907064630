"""Explain the SNRs of the paper's Table II, one difference at a time, on Gaussian updates.

The authors' code treats every tensor by itself, averages over clients *and tensors*, rounds pairs
in a skewed basis, has 2^R + 1 levels in each, and γ = 1.5·√(1 + s²ν/(ν − 2)), the text no √.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from jopeq.files import atomic
from jopeq.noise import MultivariateT
from jopeq.random import portable
from jopeq.random.streams import PrivateStream, SharedStream, derive
from jopeq.schemes.base import Scheme
from jopeq.versions import versions
from paper.cifar import CLIENTS, COLUMNS, PAPER, PUBLISHED, authors_rate, schemes_at
from paper.words import code, number, plain

Array = NDArray[np.float64]
Codec = Callable[[Array, int], Array]  # (update, its number) → decoded

FILE = "table2_snr.jsonl"
_KEY = b"jopeq: streams of an experiment "
_SPREAD = 3.0
_SKEWED = np.array([[1.0, 0.0], [1.0, 2.0]]) / np.array([[1.0], [math.sqrt(3.0)]])  # by columns
STEPS = {
    "code": "as in the code",
    "whole": "one scale, one SNR",
    "text": "γ of the text",
    "points": "our points",
    "bits": "at R bits",
}


@dataclass(frozen=True)
class Conventions:
    """SNR in dB (20·log10) of one scheme at one (R, ε) with the published (s², ν)."""

    scheme: str
    rate: float
    epsilon: float
    paper: float
    code: float  # all as in the authors' code
    whole: float  # its quantizer, but one scale and one SNR an update
    text: float  # and γ as in the paper's text
    points: float  # ours with as many points: nearest of the lowest-energy ones, γ of the text
    bits: float  # ours with as many points as R bits can name
    settings: dict[str, Any] = field(default_factory=dict)


def compute_conventions(path: Path, clients: int = CLIENTS) -> None:
    """Write all rows to ``path``, unless it is there."""
    if not path.exists():
        lines = [json.dumps(asdict(row)) + "\n" for row in _rows(tensor_sizes(), clients)]
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path) as file:
            file.write("".join(lines).encode())


def snr_table(rows: pd.DataFrame) -> pd.DataFrame:
    """The paper's SNRs, and how they become ours, as texts."""
    writers = {"scheme": code, "rate": plain, "epsilon": plain, "paper": number}
    writers |= dict.fromkeys(STEPS, number)
    shown = pd.DataFrame({column: rows[column].map(write) for column, write in writers.items()})
    return shown.rename(columns={"rate": "R", "epsilon": "ε", **STEPS})


def tensor_sizes() -> list[int]:
    """Entries of each tensor of the CNN."""
    from jopeq_lab.training import models

    model = models.build("cifar-cnn", (3, 32, 32), classes=10, seed=0)
    return [parameter.numel() for parameter in model.parameters()]


def _rows(sizes: Sequence[int], clients: int) -> Iterator[Conventions]:
    whole = [sum(sizes)]
    settings = {"clients": clients, "entries": whole[0], **versions("numpy", "scipy")}
    for column, (rate, epsilon) in enumerate(COLUMNS):
        rows = schemes_at(rate, epsilon)
        for name in ("sdq", "t", "t+sdq", "jopeq"):
            honest = rows["sdq" if name == "sdq" else f"{name}, published"]
            alike = honest if name == "t" else replace(honest, rate=authors_rate(rate))
            code = SkewedBox(name, rate, epsilon)
            wide = SkewedBox(name, rate, epsilon, is_of_text=True)
            ways = (code, sizes), (code, whole), (wide, whole), (_ours(alike), whole)
            found = [mean_snr(*way, clients) for way in (*ways, (_ours(honest), whole))]
            published = PAPER[name]["snr_db"][column]
            yield Conventions(name, rate, epsilon, published, *found, settings)


def mean_snr(codec: Codec, sizes: Sequence[int], clients: int) -> float:
    """20·log10 of the mean over clients and tensors of var(h)/var(h − h̃), h Gaussian."""
    ratios = []
    for place, size in enumerate(size for _ in range(clients) for size in sizes):
        stream = PrivateStream.reproducible(_derived(b"update", place))
        update = portable.normal(stream, 0, size)
        error = update - codec(update, place)
        ratios.append(float(update.var(ddof=1) / error.var(ddof=1)))
    return 20.0 * math.log10(statistics.fmean(ratios))


def _ours(coder: Scheme) -> Codec:
    def codec(update: Array, place: int) -> Array:
        seed, key = (_derived(purpose, place) for purpose in (b"dither", b"noise"))
        noise = PrivateStream.reproducible(key)
        payload = coder.encode(update, seed=seed if coder.codec.has_dither else None, noise=noise)
        return np.asarray(coder.decode(payload), dtype=np.float64)

    return codec


class SkewedBox:
    """The quantizer of the authors' code, with its noise before it."""

    def __init__(self, name: str, rate: float, epsilon: float, is_of_text: bool = False) -> None:
        squared_scale, nu = PUBLISHED[epsilon]
        law = MultivariateT(nu, squared_scale, 2)
        energy = 1.0 + (0.0 if name == "sdq" else law.variance)
        levels = 2.0**rate + 1.0
        self.is_quantized = name != "t"
        self.gamma = 1.5 * (energy if is_of_text else math.sqrt(energy))
        self.step = 2.0 * self.gamma / levels
        self.last = (levels - 1.0) / 2.0
        dither = _SKEWED @ _SKEWED.T * self.step**2 / 12.0
        self.noise = {"sdq": None, "jopeq": law.match(dither)}.get(name, law)

    def __call__(self, update: Array, place: int) -> Array:
        pairs = np.append(update, np.zeros(len(update) % 2)).reshape(2, -1)
        mean = pairs.mean(axis=1, keepdims=True)
        unit = _SPREAD * math.sqrt(np.square(pairs - mean).sum() / pairs.shape[1])
        scaled = (pairs - mean) / unit
        if self.noise is not None:
            stream = PrivateStream.reproducible(_derived(b"noise", place))
            scaled = scaled + self.noise.sample(stream, 0, pairs.shape[1]).T
        if self.is_quantized:
            words = SharedStream(_derived(b"dither", place)).words16(
                lane=0, start=0, count=pairs.size
            )
            shares = ((words + 0.5) / 65536.0 - 0.5).reshape(pairs.shape)
            dither = _SKEWED @ (self.step * shares)
            places = np.rint(np.linalg.solve(_SKEWED, scaled + dither) / self.step)
            scaled = _SKEWED @ (self.step * np.clip(places, -self.last, self.last)) - dither
        return np.asarray((scaled * unit + mean).reshape(-1)[: len(update)])


def _derived(purpose: bytes, place: int) -> bytes:
    return derive(_KEY, purpose, repr(place).encode())
