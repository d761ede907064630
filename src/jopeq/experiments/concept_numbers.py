"""What the pictures of docs/concepts.md show, computed by the schemes themselves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.codebook import LatticeCodebook
from jopeq.privacy.exact import exact_epsilon, log_channel
from jopeq.privacy.guarantee import places_up
from jopeq.randomness import PrivateStream, SharedStream
from jopeq.schemes import scheme
from jopeq.schemes.jopeq import JoPEQ
from jopeq.schemes.sdq import SubtractiveDither
from jopeq.theory.total_error_plane import hexagon

Array = NDArray[np.float64]

_SEED = b"jopeq: a dither for the pictures"
_KEY = b"jopeq: a noise for pictures only"
_DRAWS = 1500
_EPSILON, _RATE = 4.0, 2.0


@dataclass(frozen=True)
class Way:
    """A sample on its way: moved by the dither, sent as a point, decoded."""

    moved: Array
    point: Array
    decoded: Array


@dataclass(frozen=True)
class CellPicture:
    """Cells and codewords of A2, and one sample on three ways."""

    codewords: Array
    cells: list[Array]
    sample: Array
    dithers: Array
    plain: Way
    dithered: Way
    without_noise: Array
    with_noise: Array
    quiet_name: str
    noisy_name: str


def cell_picture() -> CellPicture:
    """One sample through the lattice A2, without dither, with it, and with noise as well."""
    epsilon, rate = 6.0, 2.5
    noisy = JoPEQ(epsilon=epsilon, rate=rate, lattice="A2", clip=1.0)  # type: ignore[arg-type]
    quiet = SubtractiveDither(rate=rate, lattice="A2", clip=1.0, gamma=noisy._codebook.gamma)  # type: ignore[arg-type]
    book = quiet._codebook
    assert isinstance(book, LatticeCodebook)
    sample = np.array([0.45, 0.3])
    dithers = quiet._dither(0, _DRAWS, SharedStream(_SEED))
    points = book.points(book.quantize(sample + dithers)[0])
    home = book.points(book.quantize(sample[None])[0])[0]
    chosen = _clearest(sample, dithers, points, home)
    repeated = np.tile(sample, (_DRAWS, 1))
    return CellPicture(
        codewords=book.codewords,
        cells=[point + hexagon(book.lattice.step) for point in book.codewords],
        sample=sample,
        dithers=sample + dithers,
        plain=Way(sample, home, home),
        dithered=Way(sample + dithers[chosen], points[chosen], points[chosen] - dithers[chosen]),
        without_noise=_decoded(quiet, repeated),
        with_noise=_decoded(noisy, repeated),
        quiet_name="sdq",
        noisy_name=f"jopeq, ε = {epsilon:g}",
    )


def _clearest(sample: Array, dithers: Array, points: Array, home: Array) -> int:
    """The dither into another cell that leaves all that is drawn furthest apart."""
    still = np.broadcast_to(sample, points.shape)
    drawn = np.stack([still, sample + dithers, points, points - dithers])
    apart = np.linalg.norm(drawn[:, None] - drawn, axis=-1)
    closest = apart[np.triu_indices(len(drawn), 1)].min(axis=0)
    is_elsewhere = np.linalg.norm(points - home, axis=1) > 1e-9
    return int(np.argmax(np.where(is_elsewhere, closest, -1.0)))


def _decoded(coder: Any, samples: Array) -> Array:
    payload = coder.encode(samples, seed=_SEED, noise=PrivateStream.reproducible(_KEY))
    return np.asarray(coder.decode(payload), dtype=np.float64)


@dataclass(frozen=True)
class Step:
    """A box of the pipeline: what is done, the numbers after it, and what random bits it takes."""

    side: str
    title: str
    formula: str
    numbers: list[str]
    source: str = ""


def pipeline_steps() -> tuple[list[Step], str]:
    """Four numbers through ``jopeq``, step by step; raises if the steps do not make the payload."""
    coder = JoPEQ(epsilon=_EPSILON, rate=_RATE)
    update = np.array([0.012, -0.031, 0.004, 0.02])
    unit = coder.spread * float(np.linalg.norm(update)) / math.sqrt(len(update))
    unit = float(np.float32(unit))
    scaled = update / unit
    shared, private = SharedStream(_SEED), PrivateStream.reproducible(_KEY)
    dither = coder._dither(0, len(update), shared)[:, 0]
    letters = coder._to_symbols(scaled[:, None], 0, shared, private).values
    noisy = _with_noise(coder, scaled)
    payload = coder.encode(update, seed=_SEED, noise=PrivateStream.reproducible(_KEY))
    decoded = coder.decode(payload)
    points = coder._codebook.points(letters)[:, 0]
    if not np.allclose((points - dither) * unit, decoded, rtol=1e-5, atol=1e-7):
        raise AssertionError("the steps that are shown do not make the payload that is sent")
    shared_bits = "shared:\nfrom the seed"
    size = [f"{len(payload)} bytes", "with header", "and CRC"]
    steps = [
        Step("client", "update", "h", _shown(update, 3)),
        Step("client", "scale", f"x = h / {unit:.4f}", _shown(scaled, 2)),
        Step("client", "+ noise", "x + n", _shown(noisy, 2), "private:\nfrom OS entropy"),
        Step("client", "+ dither", "x + n + d", _shown(noisy + dither, 2), shared_bits),
        Step("client", "nearest", "letter", [str(letter) for letter in letters]),
        Step("client", "pack", f"{len(letters)}·{_RATE:g} bits", size),
        Step("server", "unpack", "point", _shown(points, 2)),
        Step("server", "− dither", "point − d", _shown(points - dither, 2), shared_bits),
        Step("server", "unscale", "h̃", _shown(decoded, 3)),
    ]  # fmt: skip
    return steps, f"scheme jopeq, ε = {_EPSILON:g}, R = {_RATE:g}"


def _with_noise(coder: JoPEQ, scaled: Array) -> Array:
    from jopeq.noise import add_noise

    if coder.noise is None:
        return scaled
    return add_noise(coder.noise, scaled[:, None], PrivateStream.reproducible(_KEY), 0)[:, 0]


def _shown(values: Any, digits: int) -> list[str]:
    return [f"{value:+.{digits}f}".replace("-", "−") for value in values]


@dataclass(frozen=True)
class Surface:
    """Mean squared error by scheme, ε (rows) and rate (columns)."""

    epsilons: tuple[float, ...]
    rates: tuple[float, ...]
    errors: dict[str, Array]


def surface(
    epsilons: tuple[float, ...] = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0),
    rates: tuple[float, ...] = (1.0, 2.0, 3.0, 4.0, 5.0),
) -> Surface:
    """The error at the centre of [−1, 1], of the separate design, the paper's and ours."""
    errors = {}
    for name in ("laplace+sdq", "jopeq", "response"):
        rows = [
            [scheme(name, epsilon=epsilon, rate=rate).distortion for rate in rates]
            for epsilon in epsilons
        ]
        errors[name] = np.array(rows)
    return Surface(epsilons, rates, errors)


_INPUTS = np.linspace(-1.0, 1.0, 1601)  # finely: where a letter becomes impossible, curves jump


@dataclass(frozen=True)
class ServerView:
    """P(letter | x) over the inputs, for one known dither."""

    title: str
    inputs: Array
    chances: Array


def server_view() -> list[ServerView]:
    """Compression alone, the paper's scheme, and one whose ε holds."""
    dither = 0.1
    views = []
    for name in ("sdq", "jopeq", "response"):
        private = {} if name == "sdq" else {"epsilon": _EPSILON}
        coder = scheme(name, rate=_RATE, **private)
        exact = exact_epsilon(coder)
        assert exact is not None
        held = "no ε" if math.isinf(exact.server) else f"ε = {places_up(exact.server)}"
        title = f"{name}: {held}"
        if private:
            title += f" (asked for {_EPSILON:g})"
        views.append(ServerView(title, _INPUTS, np.exp(log_channel(coder, dither, _INPUTS))))
    return views
