"""Table II of the paper: CIFAR-10, K = 30 clients, the three-convolution CNN, A2 (L = 2)."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from jopeq.files import atomic
from jopeq.noise import MultivariateT
from jopeq.random import portable
from jopeq.random.streams import PrivateStream, SharedStream, derive
from jopeq.registry import scheme
from jopeq.schemes.base import Scheme
from jopeq.versions import versions
from jopeq_lab.training.config import TrainConfig
from jopeq_lab.training.models import build
from paper.runs import Job, theirs
from paper.words import code, decibels, epsilon_up, number, percents, plain

CLIENTS, LATTICE = 30, "A2"
ROUNDS, SEEDS = 160, 3
LEARNING_RATE = 0.1  # the paper's
GRID = (0.01, 0.03, 0.2)  # tried in addition
TOO_HIGH, GRID_ROUNDS = 0.2, 95  # often divergent, never the best: one seed shows that
COLUMNS = ((2.0, 2.0), (2.0, 3.0), (1.0, 3.0))  # (R, ε)
PUBLISHED = {2.0: (0.5, 4.0), 3.0: (0.2, 4.0)}  # ε: the authors' (s², ν)

# The paper's Table II by column: test accuracy in percent, and SNR in dB as 20·log10
PAPER = theirs("paper", "Table II")
_AS_THE_CODE = ", as the code quantizes"
ROW = ["label", "scheme"]  # what makes runs one row of the table, at any learning rate

# Jobs


@lru_cache
def schemes_at(rate: float, epsilon: float) -> dict[str, Scheme]:
    """The rows of one column. "published": the authors' (s², ν); else our calibration to ε."""
    squared_scale, nu = PUBLISHED[epsilon]
    private = {"epsilon": epsilon}
    published = {**private, "squared_scale": squared_scale, "nu": nu}
    quantized = {"rate": rate, "lattice": LATTICE}
    return {
        "none": scheme("none"),
        "sdq": scheme("sdq", **quantized),
        "sdq, authors' points": scheme("sdq", rate=authors_rate(rate), lattice=LATTICE),
        "t, published": scheme("t", **published),
        "t": scheme("t", **private),
        "t+sdq, published": scheme("t+sdq", **published, **quantized),
        "t+sdq": scheme("t+sdq", **private, **quantized),
        "jopeq, published": scheme("jopeq", **published, **quantized),
        "jopeq": scheme("jopeq", **private, **quantized),
        "response": scheme("response", **private, rate=rate),
        "response, spread auto": scheme(
            "response", **private, rate=rate, spread="auto", clients=CLIENTS
        ),
    }


def authors_rate(rate: float) -> float:
    """Bits per entry of the code's codebook, (2^R + 1)² points per pair: log2(2^R + 1).

    >>> round(2 ** (2 * authors_rate(2.0))), round(2 ** (2 * authors_rate(1.0)))
    (25, 9)
    """
    return math.log2(2.0**rate + 1.0)


def as_the_code(name: str, rate: float, epsilon: float) -> Scheme:
    """A published scheme, quantized as the authors' code does where it departs from the text.

    As many points, γ = 1.5·√(1 + s²ν/(ν − 2)), and a scale and mean of its own for every tensor.
    """
    squared_scale, nu = PUBLISHED[epsilon]
    gamma = 1.5 * math.sqrt(1.0 + squared_scale * nu / (nu - 2.0))
    published = {"epsilon": epsilon, "squared_scale": squared_scale, "nu": nu, "gamma": gamma}
    quantized = {"rate": authors_rate(rate), "lattice": LATTICE, "per": "tensor", "center": True}
    return scheme(name, **published, **quantized)


def table2_schemes() -> list[tuple[str, Scheme]]:
    """Every row and scheme once: some columns share a scheme."""
    rows: dict[tuple[str, Scheme], None] = {}
    for column in reversed(COLUMNS):
        rows |= dict.fromkeys(schemes_at(*column).items())
    for name in ("t+sdq", "jopeq"):
        label = f"{name}, published{_AS_THE_CODE}"
        rows[label, as_the_code(name, *COLUMNS[-1])] = None
    return list(rows)


def jobs(data_dir: Path | None = None, count: int = SEEDS) -> Iterator[Job]:
    """Table II, the most wanted first: the paper's rate, the lower ones, last the higher one."""
    for lr in (LEARNING_RATE, *GRID):
        for seed in range(1 if lr == TOO_HIGH else count):
            for label, coder in table2_schemes():
                rounds = GRID_ROUNDS if lr == TOO_HIGH else ROUNDS
                yield _job(label, coder, data_dir, rounds=rounds, lr=lr, seed=seed)


def _job(label: str, coder: Scheme, data_dir: Path | None, **chosen: Any) -> Job:
    place = None if data_dir is None else str(data_dir)
    usual = {"model": "cifar-cnn", "centered": True, "clients": CLIENTS, "validation": 10_000}
    config = TrainConfig(scheme=coder, data="cifar10", data_dir=place, **usual, **chosen)
    return Job(label, config)


# Learning rates


def accuracy_after(run: Any, rounds: int) -> float:
    """Test accuracy of the best validation round among the first ``rounds``."""
    if rounds >= len(run.validation):
        return float(run.test_accuracy)
    first = run.validation[:rounds]
    return float(run.test[first.index(max(first))])


def gains(runs: pd.DataFrame) -> pd.DataFrame:
    """Points of accuracy above the paper's learning rate, by row and rate, validation and test.

    After equally many rounds, means over the seeds that both rates have.
    """
    papers = runs[runs.lr == LEARNING_RATE]
    pairs = runs[runs.lr != LEARNING_RATE].merge(papers, on=[*ROW, "seed"], suffixes=("", "_0"))
    found = []
    for pair in pairs.itertuples():
        rounds = min(pair.rounds, pair.rounds_0)
        best, test = max(pair.validation[:rounds]), accuracy_after(pair, rounds)
        first = pair.validation_0[:rounds]
        found.append((best - max(first), test - pair.test_0[first.index(max(first))]))
    pairs[["gain", "test_gain"]] = 100 * pd.DataFrame(found, index=pairs.index)
    return pairs.groupby([*ROW, "lr"], sort=False)[["gain", "test_gain"]].mean().reset_index()


def best_rates(runs: pd.DataFrame) -> pd.Series:
    """The learning rate of the best validation accuracy, by row."""
    found = gains(runs).sort_values("gain").groupby(ROW).last()
    return found.lr.where(found.gain > 0, LEARNING_RATE)


# Tables


def column_table(runs: pd.DataFrame, rate: float, epsilon: float) -> pd.DataFrame:
    """One column of the paper's Table II: paper and ours side by side."""
    cells = dict(list(runs.groupby([*ROW, "lr"])))
    best = best_rates(runs)
    rows = []
    for label, coder in schemes_at(rate, epsilon).items():
        mine = cells[label, coder.spec, LEARNING_RATE]
        first = mine.iloc[0]
        paper, snr = _of_paper(label, COLUMNS.index((rate, epsilon)))
        best_lr = best[label, coder.spec]
        at_best = f": {_accuracy(cells[label, coder.spec, best_lr])}"
        sample = "an entry" if coder.dimension == 1 else "a pair"
        proven = "none" if math.isnan(first.epsilon) else f"{epsilon_up(first.epsilon)} {sample}"
        rows.append(
            {
                "scheme": code(label),
                f"accuracy: paper / ours, lr {LEARNING_RATE:g}": f"{paper} / **{_accuracy(mine)}**",
                "best lr": f"{best_lr:g}{at_best if best_lr != LEARNING_RATE else ''}",
                "SNR dB: paper / ours": f"{snr} / {_snr(mine)}",
                "bits per parameter": number(first.bits_per_parameter),
                "ε asked": plain(first.nominal),
                "ε proven": proven,
            }
        )
    return pd.DataFrame(rows)


def _of_paper(label: str, column: int) -> tuple[str, str]:
    """The paper's accuracy and SNR of a row; its Table II has the published (s², ν)."""
    name = label.removesuffix(", published")
    if label in ("none", "sdq") or label != name:
        accuracy, snr = (PAPER[name][key][column] for key in ("accuracy", "snr_db"))
        return str(accuracy), number(math.inf if snr is None else snr)
    return "–", "–"


def _accuracy(runs: pd.DataFrame) -> str:
    diverged = runs.diverged.notna().sum()
    return percents(runs.test_accuracy) + (f", {diverged} diverged" if diverged else "")


def _snr(runs: pd.DataFrame) -> str:
    """The mean over seeds, and their deviation."""
    of_seeds = [decibels(runs.snr[runs.seed == seed]) for seed in runs.seed]
    mean = decibels(runs.snr)
    if math.isinf(mean) or len(runs) == 1:
        return number(mean)
    return f"{number(mean)} ± {pd.Series(of_seeds).std():.2f}"


def quantized_as_the_code(runs: pd.DataFrame) -> pd.DataFrame:
    """R = 1, ε = 3, the paper's learning rate: the published rows, as here and as the code rounds.

    Texts, indexed by scheme and by the points that its row gains with the code's quantizer.
    """
    rate, epsilon = COLUMNS[-1]
    cells = dict(list(runs.groupby([*ROW, "lr"])))
    rows = []
    for name in ("t+sdq", "jopeq"):
        label = f"{name}, published"
        here = cells[label, schemes_at(rate, epsilon)[label].spec, LEARNING_RATE]
        code_spec = as_the_code(name, rate, epsilon).spec
        other = cells[label + _AS_THE_CODE, code_spec, LEARNING_RATE]
        gap = 100 * (other.test_accuracy.mean() - here.test_accuracy.mean())
        for mine, title in ((here, label), (other, label + _AS_THE_CODE)):
            texts = {"accuracy": percents(mine.test_accuracy), "SNR dB": _snr(mine)}
            rows.append({"label": name, "gap": gap, "scheme": code(title), **texts})
    return pd.DataFrame(rows).set_index(["label", "gap"])


# The SNRs of the paper's Table II explained, one difference at a time, on Gaussian updates. The
# authors' code treats every tensor by itself, averages over clients *and tensors*, rounds pairs in
# a skewed basis, has 2^R + 1 levels in each, and γ = 1.5·√(1 + s²ν/(ν − 2)), the text no √.


Array = NDArray[np.float64]
Codec = Callable[[Array, int], Array]  # (update, its number) → decoded

SNR_FILE = "table2_snr.jsonl"
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
    model = build("cifar-cnn", (3, 32, 32), classes=10, seed=0)
    return [parameter.numel() for parameter in model.parameters()]


def _rows(sizes: Sequence[int], clients: int) -> Iterator[Conventions]:
    whole = [sum(sizes)]
    settings = {"clients": clients, "entries": whole[0], **versions("numpy", "scipy")}
    for column, (rate, epsilon) in enumerate(COLUMNS):
        rows = schemes_at(rate, epsilon)
        for name in ("sdq", "t", "t+sdq", "jopeq"):
            honest = rows["sdq" if name == "sdq" else f"{name}, published"]
            alike = honest if name == "t" else replace(honest, rate=authors_rate(rate))
            box = SkewedBox(name, rate, epsilon)
            wide = SkewedBox(name, rate, epsilon, is_of_text=True)
            ways = (box, sizes), (box, whole), (wide, whole), (_ours(alike), whole)
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
