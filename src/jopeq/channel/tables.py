"""From real probabilities to verified integer channels, and the table of those we ship.

A solver returns floats; a privacy claim needs integers. :func:`realise` rounds a channel to
the private side, solves the decoder again for the *integer* channel, and :func:`verify` checks
every claim in exact arithmetic. Entries of ``data/channels.json`` pass through the same
:func:`verify` whenever they are read; ``tools/design_channels.py`` writes that file.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.channel.channel import TOTAL, Channel, level_positions
from jopeq.errors import DesignError
from jopeq.random.rational import exp_floor

UNBIASED = 2.0**-28
"""The largest bias of a verified channel, relative to its largest decoder value.

Float32 resolves 2**-24, and the 16-bit dither of the schemes leaves more than this.
"""

_SAME_VALUE = 1e-6  # letters closer than this are one letter
_RAREST_LETTER = 1e-8  # letters rarer than this on every level are dropped


def verify(channel: Channel, epsilon: float) -> Channel:
    """Return ``channel`` if it is ε-LDP and unbiased in exact arithmetic, else raise DesignError.

    Every letter's largest count must be at most e^ε times its smallest, against a rational
    number below e^ε. (That rows sum to 2**32 is checked by ``Channel`` itself.)

    >>> from jopeq.channel.response import randomized_response
    >>> verify(randomized_response(2.0, 3), 2.0).letters
    3
    """
    limit = exp_floor(epsilon)
    for letter, column in enumerate(zip(*channel.counts, strict=True)):
        if max(column) > limit * min(column):
            raise DesignError(
                f"letter {letter} has counts {max(column)} and {min(column)}, a ratio above "
                f"exp({epsilon}): the channel is not private enough"
            )
    if not channel.bias <= UNBIASED * max(map(abs, channel.values)):
        raise DesignError(f"the channel has bias {channel.bias:.3g}: its decoder is not unbiased")
    return channel


def realise(
    probabilities: NDArray[np.float64],
    values: NDArray[np.float64],
    *,
    epsilon: float,
    weights: NDArray[np.float64],
    is_dither_shared: bool = True,
) -> Channel:
    """The verified integer channel next to a symmetric real one (K × J, mirror-symmetric).

    Counts are rounded within [m_l, ⌊e^ε m_l⌋] for an integer m_l a letter (if a row then cannot
    sum to 2**32, after mixing in a tiny share of a common row), then the decoder is solved for
    them. Given ⌊J/2⌋ ≥ ⌊K/2⌋ it is unbiased to the rounding of floats (1e-15), unless
    the optimal channel is degenerate; then, as with fewer letters, what rounding to multiples of
    2**-32 leaves (about 1e-10) is its bias.
    """
    table = (probabilities + probabilities[::-1, ::-1]) / 2
    table = _merge(table, (values - values[::-1]) / 2)
    common = table.mean(axis=0)
    for share in (0.0, 2.0**-26, 2.0**-20):
        counts = _round(table + share * (common - table), exp_floor(epsilon))
        if counts is not None:
            break
    else:
        raise DesignError(f"no integer channel fits next to the real one at epsilon={epsilon}")
    solved = _decoder(np.array(counts, dtype=np.float64) / TOTAL, weights)
    channel = Channel(
        counts=counts, values=tuple(solved.tolist()), is_dither_shared=is_dither_shared
    )
    return verify(channel, epsilon)


def _merge(table: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Drop letters that never occur and join letters of one value (ratios cannot grow)."""
    used = table.max(axis=0) > _RAREST_LETTER
    order = np.argsort(values[used], kind="stable")
    group = np.concatenate([[0], np.cumsum(np.diff(values[used][order]) > _SAME_VALUE)])
    joined = np.zeros((len(table), group[-1] + 1))
    np.add.at(joined.T, group, table[:, used][:, order].T)
    joined = (joined + joined[::-1, ::-1]) / 2
    joined /= joined.sum(axis=1, keepdims=True)
    return joined


def _round(table: NDArray[np.float64], limit: Fraction) -> tuple[tuple[int, ...], ...] | None:
    """Mirror-symmetric integer rows within e^ε of each other, or None if they do not fit."""
    levels, letters = table.shape
    low = [max(1, math.ceil(smallest)) for smallest in TOTAL * table.min(axis=0)]
    high = [int(limit * smallest) for smallest in low]
    rows: list[list[int]] = []
    for real in (TOTAL * table[: (levels + 1) // 2]).tolist():
        row = [min(max(round(c), a), b) for c, a, b in zip(real, low, high, strict=True)]
        missing = TOTAL - sum(row)
        if len(rows) < levels // 2:
            missing = _fill(row, low, high, range(letters), missing)
        else:  # the middle row is its own mirror image: letters change in pairs
            pairs = _fill(row, low, high, range(letters // 2), missing // 2)
            centre = range(letters // 2, (letters + 1) // 2)
            missing = _fill(row, low, high, centre, 2 * pairs + missing % 2)
            row[(letters + 1) // 2 :] = row[: letters // 2][::-1]
        if missing:
            return None
        rows.append(row)
    return _mirror(rows, levels)


def _fill(row: list[int], low: list[int], high: list[int], letters: range, missing: int) -> int:
    """Add ``missing`` (of either sign) to the letters, the most common first; what is left."""
    for letter in sorted(letters, key=lambda letter: -row[letter]):
        step = min(max(missing, low[letter] - row[letter]), high[letter] - row[letter])
        row[letter] += step
        missing -= step
    return missing


def _mirror(rows: list[list[int]], levels: int) -> tuple[tuple[int, ...], ...]:
    first = [tuple(row) for row in rows]
    return tuple(first + [row[::-1] for row in first[: levels // 2][::-1]])


def _decoder(table: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """The antisymmetric values of least error among those of least bias.

    Minimise Σ_l q_l y_l² − 2 b_l y_l subject to Σ_l P(l|j) y_l = v_j for j < K/2 (the mirrored
    half and a middle level follow by symmetry): a least-norm problem around y = b/q. With
    ⌊K/2⌋ > ⌊J/2⌋ there are more equations than values, and least squares it is.
    """
    levels, letters = table.shape
    half = letters // 2
    positions = level_positions(levels)
    folded = (table - table[:, ::-1])[: levels // 2, :half]
    scale = np.sqrt(weights @ table)[:half]
    values = ((weights * positions) @ table)[:half] / scale**2
    for _ in range(3):  # refines away the rounding of the first solve
        residual = positions[: levels // 2] - folded @ values
        values = values + np.linalg.lstsq(folded / scale, residual, rcond=1e-6)[0] / scale
    return np.concatenate([values, np.zeros(letters % 2), -values[::-1]])


def to_entry(channel: Channel) -> dict[str, Any]:
    """The half of a mirror-symmetric channel that determines it, ready for JSON."""
    levels, letters = channel.levels, channel.letters
    return {
        "levels": levels,
        "letters": letters,
        "counts": channel.counts[: (levels + 1) // 2],
        "values": channel.values[: letters // 2],
    }


def from_entry(entry: dict[str, Any], epsilon: float) -> Channel:
    """The verified channel of one entry of the table."""
    half = [float(value) for value in entry["values"]]
    middle = [0.0] * (entry["letters"] % 2)
    channel = Channel(
        counts=_mirror(entry["counts"], entry["levels"]),
        values=tuple(half + middle + [-value for value in half[::-1]]),
    )
    return verify(channel, epsilon)


@lru_cache(maxsize=1)
def _shipped() -> dict[str, Any]:
    source = files("jopeq").joinpath("data/channels.json")
    return json.loads(source.read_text("ascii")) if source.is_file() else {}


def shipped_channel(epsilon: float, max_letters: int) -> Channel | None:
    """The channel shipped for exactly this ε and number of letters, verified, or None."""
    entry = _shipped().get("channels", {}).get(f"{float(epsilon)!r} {max_letters}")
    return None if entry is None else from_entry(entry, epsilon)


def shipped_bound(epsilon: float) -> float | None:
    """The lower bound shipped for exactly this ε, or None."""
    bound = _shipped().get("bounds", {}).get(repr(float(epsilon)))
    return None if bound is None else float(bound)
