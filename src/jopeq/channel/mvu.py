"""The minimum-variance unbiased mechanism of Chaudhuri, Guo and Rabbat (2022), a baseline.

2^b levels and 2^b letters: a channel that is ε-LDP, unbiased at every level and of little variance,
averaged uniformly over the levels. A linear programme finds the probabilities for given decoder
values, and a sequence of programmes moves the values. The solution is rounded to integers on the
private side and verified in exact arithmetic. Channels are mirror-symmetric, and nothing is random.
Another version of SciPy may find another channel: compare ``fingerprint``.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jopeq.channel.channel import TOTAL, Channel, level_positions
from jopeq.errors import DesignError
from jopeq.random.rational import exp_floor

Floats = NDArray[np.float64]

UNBIASED = 2.0**-28
"""The largest bias of a verified channel, relative to its largest decoder value."""

_MIN_EPSILON, _MAX_EPSILON = 0.1, 10.0
_MOST_BITS = 5  # more take too long to solve
_SAME_VALUE = 1e-6  # letters closer than this are one letter
_RAREST_LETTER = 1e-8  # letters rarer than this on every level are dropped


@lru_cache(maxsize=64)
def mvu_channel(epsilon: float, bits: int) -> Channel:
    """The channel of 2^bits levels and at most as many letters; rounding to a level is private.

    >>> channel = mvu_channel(4.0, 1)
    >>> channel.letters, channel.is_dither_shared, f"{channel.distortion(0.0):.3f}"
    (2, False, '1.076')
    """
    if bits not in range(1, _MOST_BITS + 1):
        raise ValueError(
            f"bits must be an integer from 1 to {_MOST_BITS}, got {bits}: more take too long to "
            "solve"
        )
    if not _MIN_EPSILON <= epsilon <= _MAX_EPSILON:
        raise ValueError(
            f"epsilon must be in [{_MIN_EPSILON}, {_MAX_EPSILON}] for scheme='mvu', got {epsilon}: "
            "outside use scheme='response'"
        )
    table, values = _design(epsilon, 2**bits)
    return _realise(table, values, epsilon)


# Real channels


class _Solution(NamedTuple):
    error: float
    upper: Floats  # the first half of the rows
    move: Floats  # of the lower values


def _design(epsilon: float, size: int) -> tuple[Floats, Floats]:
    """A locally optimal channel: its table and decoder values, by sequential linear programming.

    A step is kept if the exact programme at the new values is better; the trust region then grows,
    else it shrinks.
    """
    best: tuple[float, Floats, Floats] | None = None
    for values in _starting_values(epsilon, size):
        found = _fix(epsilon, values)
        for _ in range(30):  # too narrow a decoder cannot be unbiased
            if found is not None:
                break
            values = np.concatenate([values[:1] * 1.1, values[1:]])
            found = _fix(epsilon, values)
        if found is None:
            continue
        error, upper, _ = found
        radius = 0.05 * abs(values[0])
        for _ in range(60):
            moved = _improve(epsilon, values, upper, radius)
            found = None if moved is None else _fix(epsilon, values + moved.move)
            if moved is not None and found is not None and found.error < error * (1 - 1e-7):
                error, upper, values = found.error, found.upper, values + moved.move
                radius *= 1.5
            else:
                radius /= 3
            if radius < 1e-5:
                break
        if best is None or error < best[0]:
            best = (error, upper, values)
    if best is None:
        raise DesignError(f"no MVU channel found for epsilon={epsilon} and {size} letters")
    _, upper, values = best
    return np.vstack([upper, upper[::-1, ::-1]]), np.concatenate([values, -values[::-1]])


def _starting_values(epsilon: float, size: int) -> list[Floats]:
    """Lower halves of decoders to start from: that of a response, and four geometric series.

    Of 83 (ε, bits) that a finer search of starts was tried on, one channel errs by 1% more, and
    the others by at most half a percent.
    """
    half, ratio = size // 2, math.exp(epsilon)
    response = (ratio + size - 1) / (ratio - 1) * level_positions(size)[:half]
    largest, steps = (ratio + 1) / (ratio - 1), np.arange(half, dtype=np.float64)
    return [response, *(-largest * falls**steps for falls in (0.2, 0.4, 0.6, 0.9))]


def _improve(epsilon: float, values: Floats, pivot: Floats, radius: float) -> _Solution | None:
    """The programme for P with the values free to move by ``radius``, linearised at ``pivot``."""
    from scipy import sparse

    half, ratio = len(values), math.exp(epsilon)
    letters, size = 2 * half, 2 * half * half
    v = level_positions(letters)[:half]
    decoder = np.concatenate([values, -values[::-1]])
    slope = 2.0 / letters * (decoder - v[:, None])
    cost = np.zeros(size + 2 * half)
    cost[:size] = (slope * (decoder - v[:, None])).ravel()
    pull = np.sum(2 * slope * pivot, axis=0)
    cost[size + half :] = (pull - pull[::-1])[:half]

    equal = np.zeros((2 * half, len(cost)))
    equal[:half, :size] = np.kron(np.eye(half), np.ones(letters))
    equal[half:, :size] = np.kron(np.eye(half), decoder)
    equal[half:, size + half :] = (pivot - pivot[:, ::-1])[:, :half]
    target = np.concatenate([np.ones(half), v])

    # columns size.. are the largest probabilities e^ε m_l: P ≤ e^ε m and e^ε m / e^ε ≤ P
    fold = np.minimum(np.arange(letters), np.arange(letters)[::-1])
    kind = sparse.csr_matrix(np.tile(np.eye(half)[fold], (half, 1)))
    still = sparse.csr_matrix((size, half))
    unit = sparse.identity(size, format="csr")
    below = sparse.bmat([[unit, -kind, still], [-unit, kind / ratio, still]], format="csr")
    bounds = [(0.0, None)] * (size + half) + [(-radius, radius)] * half
    limits = {"A_ub": below, "b_ub": np.zeros(2 * size), "bounds": bounds}
    result = _linprog(cost, A_eq=sparse.csr_matrix(equal), b_eq=target, **limits)
    if result.status != 0:
        return None
    upper = result.x[:size].reshape(half, letters)
    return _Solution(float(result.fun), upper, result.x[size + half :])


def _fix(epsilon: float, values: Floats) -> _Solution | None:
    """The exact programme for these values; None if it is infeasible."""
    return _improve(epsilon, values, np.zeros((len(values), 2 * len(values))), 0.0)


def _linprog(cost: Floats, **constraints: Any) -> Any:
    from scipy.optimize import linprog

    for tolerance in (1e-10, 1e-7):  # large ε cannot always be solved to the finer one
        options = {f"{side}_feasibility_tolerance": tolerance for side in ("primal", "dual")}
        result = linprog(cost, method="highs", options={**options, "time_limit": 20}, **constraints)
        if result.status == 0:
            break
    return result


# From real probabilities to integers


def _realise(probabilities: Floats, values: Floats, epsilon: float) -> Channel:
    """The verified integer channel next to a mirror-symmetric real one.

    Counts are rounded within [m_l, ⌊e^ε m_l⌋] for an integer m_l per letter (after mixing in a tiny
    share of a common row if a row then cannot sum to 2**32); the decoder is solved for them.
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
    solved = _decoder(np.array(counts, dtype=np.float64) / TOTAL)
    channel = Channel(counts=counts, values=tuple(solved.tolist()), is_dither_shared=False)
    return verify(channel, epsilon)


def _merge(table: Floats, values: Floats) -> Floats:
    """Drop letters that never occur and join letters of one value (ratios cannot grow)."""
    used = table.max(axis=0) > _RAREST_LETTER
    order = np.argsort(values[used], kind="stable")
    group = np.concatenate([[0], np.cumsum(np.diff(values[used][order]) > _SAME_VALUE)])
    joined = np.zeros((len(table), group[-1] + 1))
    np.add.at(joined.T, group, table[:, used][:, order].T)
    joined = (joined + joined[::-1, ::-1]) / 2
    joined /= joined.sum(axis=1, keepdims=True)
    return joined


def _round(table: Floats, limit: Fraction) -> tuple[tuple[int, ...], ...] | None:
    """Mirror-symmetric integer rows within e^ε of each other, or None if they do not fit."""
    low = [max(1, math.ceil(smallest)) for smallest in TOTAL * table.min(axis=0)]
    high = [int(limit * smallest) for smallest in low]
    rows: list[tuple[int, ...]] = []
    for real in (TOTAL * table[: len(table) // 2]).tolist():
        row = [min(max(round(c), a), b) for c, a, b in zip(real, low, high, strict=True)]
        if _fill(row, low, high, TOTAL - sum(row)):
            return None
        rows.append(tuple(row))
    return (*rows, *(row[::-1] for row in rows[::-1]))


def _fill(row: list[int], low: list[int], high: list[int], missing: int) -> int:
    """Add ``missing`` (of either sign) to the letters, the most common first; what is left."""
    for letter in sorted(range(len(row)), key=lambda letter: -row[letter]):
        step = min(max(missing, low[letter] - row[letter]), high[letter] - row[letter])
        row[letter] += step
        missing -= step
    return missing


def _decoder(table: Floats) -> Floats:
    """The antisymmetric values of least error among those of least bias.

    Minimise Σ_l q_l y_l² − 2 b_l y_l subject to Σ_l P(l|j) y_l = v_j for j < K/2: a least-norm
    problem around y = b/q, or least squares with fewer letters than levels.
    """
    levels, letters = table.shape
    half = letters // 2
    positions, weights = level_positions(levels), np.full(levels, 1 / levels)
    folded = (table - table[:, ::-1])[: levels // 2, :half]
    scale = np.sqrt(weights @ table)[:half]
    values = ((weights * positions) @ table)[:half] / scale**2
    for _ in range(3):  # refines away the rounding of the first solve
        residual = positions[: levels // 2] - folded @ values
        values = values + np.linalg.lstsq(folded / scale, residual, rcond=1e-6)[0] / scale
    return np.concatenate([values, np.zeros(letters % 2), -values[::-1]])


def verify(channel: Channel, epsilon: float) -> Channel:
    """``channel`` if it is ε-LDP and unbiased in exact arithmetic, else a ``DesignError``."""
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
