"""The privacy loss of one record in rounds of sampled sums, by pessimistic distributions.

The accountant is ``dp-accounting``. Composed rounds have

    δ(ε) = e^K·δ_PLD(ε − 2K) + Στ + (1 + e^ε)·Σv ,   K = Σκ

with the sums over all rounds (docs/guarantees.md, section "records", which has κ, τ and v).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from jopeq.kept import Kept

_FINENESS = 1024  # intervals of a distribution in one ε: pessimistic for any, and off by 10⁻⁴ here
_MIXTURE_FINENESS = 256  # mixtures take five times as long
_INTERVALS = (1e-6, 4e-3)
_STEPS = 512  # multipliers from one power of two to the next
_LOWEST, _HIGHEST = -4 * _STEPS, 24 * _STEPS
_KEPT = Kept(__file__, most=4096)
LEAST_DELTA = 1e-11
"""Below a tenth of it the rounding of the accountant's transforms is no longer small."""

_DOUBT = 0.25  # of ε: how far the bound that is quick may be above what was kept


@dataclass(frozen=True)
class RecordRounds:
    """Rounds of one run: Gaussian noise of ``multiplier`` distances on samples of ``sampling``.

    A person has a record in up to ``hospitals_per_person`` hospitals. ``kappa``, ``tau`` and
    ``variation`` are κ, τ and v of one round.
    """

    multiplier: float
    sampling: float
    hospitals_per_person: int = 1
    rounds: int = 1
    kappa: float = 0.0
    tau: float = 0.0
    variation: float = 0.0


def delta_of(runs: Sequence[RecordRounds], epsilon: float) -> float:
    """δ(ε) of all these rounds together, at most 1."""
    kappa, tau, variation = _sums(runs)
    if not 2.0 * kappa <= epsilon:
        return 1.0
    loss = float(_compose(runs, 1.0).get_delta_for_epsilon(epsilon - 2.0 * kappa))
    return min(1.0, math.exp(kappa) * loss + tau + (1.0 + math.exp(epsilon)) * variation)


def epsilon_of(runs: Sequence[RecordRounds], delta: float, at_most: float) -> float:
    """An ε ≤ ``at_most`` with δ(ε) ≤ δ; inf if there is none. Σv is charged at ``at_most``."""
    if not any(run.rounds for run in runs):
        return 0.0
    kappa, tau, variation = _sums(runs)
    left = (delta - tau - (1.0 + math.exp(at_most)) * variation) * math.exp(-kappa)
    if not left >= LEAST_DELTA / 10.0:
        return math.inf
    epsilon = _spent_epsilon(runs, left, at_most) + 2.0 * kappa
    return epsilon if epsilon <= at_most * (1.0 + 1e-9) else math.inf


def _spent_epsilon(runs: Sequence[RecordRounds], delta: float, scale: float) -> float:
    """ε of the composed rounds at δ, from the disk if it was computed there before.

    Whoever has changed the file cannot hide more than ``_DOUBT`` of ``scale``: a bound that holds
    for certain is computed every time.
    """
    key = ([astuple(run)[:4] for run in runs if run.rounds], delta, scale)
    told = _read_kept("epsilon", *key)
    if told <= _renyi_epsilon(runs, delta) <= told + _DOUBT * scale:
        return told
    found = float(_compose(runs, scale).get_epsilon_for_delta(delta))
    _KEPT.put(repr(found).encode(), "epsilon", *key)
    return found


def _read_kept(*key: Any) -> float:
    """The number that was kept; NaN, with which nothing holds, if there is none."""
    with suppress(ValueError):
        return float(_KEPT.find(*key) or "nan")
    return math.nan


def _renyi_epsilon(runs: Sequence[RecordRounds], delta: float) -> float:
    """An ε that surely holds, by Rényi divergences (Mironov, Talwar, Zhang 2019): quick, too large.

    A person's copies count as drawn together, with the chance that any of them is.
    """
    orders, j = np.arange(2.0, 129.0)[:, None], np.arange(129)
    factorials = np.array([math.lgamma(n + 1.0) for n in j])
    chosen = factorials[2:, None] - factorials - factorials[np.maximum(orders - j, 0).astype(int)]
    total = np.zeros(len(orders))
    for run in runs:
        copies = run.hospitals_per_person
        z, q = run.multiplier / copies, min(1.0 - (1.0 - run.sampling) ** copies, 1.0 - 2.0**-53)
        logs = chosen + j * math.log(q) + (orders - j) * math.log1p(-q) + j * (j - 1) / (2 * z * z)
        divergences = np.logaddexp.reduce(np.where(j <= orders, logs, -np.inf), axis=1)
        total += run.rounds * divergences / (orders[:, 0] - 1.0)
    orders = orders[:, 0]
    spent = total + np.log1p(-1.0 / orders) - np.log(delta * orders) / (orders - 1.0)
    return max(0.0, float(spent.min()))


def epsilon_within(runs: Sequence[RecordRounds], delta: float, budget: float) -> float:
    """``epsilon_of`` for a budget that may be far above ε: Σv is charged nearer to ε itself."""
    variation, found = _sums(runs)[2], math.inf
    largest = min(budget, 700.0)  # e^710 is no float
    for at_most in (largest / 2**k for k in range(8)):
        found = epsilon_of(runs, delta, at_most)
        if math.isfinite(found) or (1.0 + math.exp(at_most)) * variation < delta / 10.0:
            break
    return found


def is_delta_short(runs: Sequence[RecordRounds], delta: float, budget: float) -> bool:
    """True if ε would be within the budget if rounds put nothing by of δ for τ and v."""
    bare = [replace(run, tau=0.0, variation=0.0) for run in runs]
    return epsilon_within(bare, delta, budget) <= budget < epsilon_within(runs, delta, budget)


def _sums(runs: Sequence[RecordRounds]) -> tuple[float, float, float]:
    """Σκ, Στ and Σv over all rounds."""
    return (
        math.fsum(run.rounds * run.kappa for run in runs),
        math.fsum(run.rounds * run.tau for run in runs),
        math.fsum(run.rounds * run.variation for run in runs),
    )


def _compose(runs: Sequence[RecordRounds], epsilon: float) -> Any:
    is_mixed = any(run.hospitals_per_person > 1 for run in runs)
    fineness = _MIXTURE_FINENESS if is_mixed else _FINENESS
    interval = min(max(epsilon / fineness, _INTERVALS[0]), _INTERVALS[1])
    found = (
        _distribution(run.multiplier, run.sampling, run.hospitals_per_person, run.rounds, interval)
        for run in runs
        if run.rounds
    )
    return reduce(lambda one, two: one.compose(two), found)


@lru_cache(maxsize=32)
def _distribution(
    multiplier: float, sampling: float, copies: int, rounds: int, interval: float
) -> Any:
    """The privacy loss of these rounds, add or remove one person, the worse of both directions."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    common = {"value_discretization_interval": interval}
    if sampling >= 1.0:  # one Gaussian mechanism at the distance of all copies and rounds
        return pld.from_gaussian_mechanism(multiplier / (copies * math.sqrt(rounds)), **common)
    if copies == 1:
        once = pld.from_gaussian_mechanism(multiplier, sampling_prob=sampling, **common)
        return once.self_compose(rounds)
    chances = [
        math.comb(copies, j) * sampling**j * (1.0 - sampling) ** (copies - j)
        for j in range(copies + 1)
    ]
    total = math.fsum(chances)
    chances = [chance / total for chance in chances]
    distances = [float(j) for j in range(copies + 1)]
    once = pld.from_mixture_gaussian_mechanism(multiplier, distances, chances, **common)
    return once.self_compose(rounds)


# The least multiplier


def multiplier_at(index: int) -> float:
    """A coarse grid: 512 multipliers from one power of two to the next.

    >>> multiplier_at(0), multiplier_at(511), multiplier_at(512), multiplier_at(-512)
    (1.0, 1.998046875, 2.0, 0.5)
    """
    octave, step = divmod(index, _STEPS)
    return math.ldexp(1.0 + step / _STEPS, octave)


def _index_above(multiplier: float) -> int:
    """The index of the least multiplier on the grid that is not below this one."""
    fraction, octave = math.frexp(multiplier)
    index = (octave - 1) * _STEPS + math.ceil((2.0 * fraction - 1.0) * _STEPS)
    return min(max(index, _LOWEST), _HIGHEST)


def multiplier_below(multiplier: float) -> float:
    """The multiplier on the grid before this one."""
    return multiplier_at(_index_above(multiplier) - 1)


@lru_cache(maxsize=256)
def least_multiplier(
    epsilon: float, delta: float, sampling: float, rounds: int, copies: int
) -> float:
    """The least multiplier on the grid with (ε, δ) for all rounds; inf if it is beyond the grid.

    >>> least_multiplier(1.0, 1e-5, 1.0, 1, 1)
    3.734375
    """

    def spent(index: int) -> float:
        run = RecordRounds(multiplier_at(index), sampling, copies, rounds)
        return float(_compose((run,), epsilon).get_epsilon_for_delta(delta))

    key = (epsilon, delta, sampling, rounds, copies)
    told = _read_kept("multiplier", *key)
    if 0.0 < told < math.inf and multiplier_at(_index_above(told)) == told:
        run = RecordRounds(told, sampling, copies, rounds)
        is_near = _renyi_epsilon((run,), delta) <= (1.0 + _DOUBT) * epsilon
        if is_near or spent(_index_above(told)) <= epsilon:  # exact: once, where a search is many
            return told
    found = _search(spent, epsilon, _index_above(_guess(*key)))
    multiplier = math.inf if found is None else multiplier_at(found)
    _KEPT.put(repr(multiplier).encode(), "multiplier", *key)
    return multiplier


def _guess(epsilon: float, delta: float, sampling: float, rounds: int, copies: int) -> float:
    """The multiplier of the central limit (Bu, Dong, Long, Su 2020): many rounds are one Gaussian.

    A person's copies are mostly not drawn together.
    """
    from dp_accounting import get_sigma_gaussian

    mu = 1.0 / float(get_sigma_gaussian(epsilon, delta))
    if sampling >= 1.0:
        return copies * math.sqrt(rounds) / mu
    drawn = 1.0 + (copies - 1) * sampling
    return drawn / math.sqrt(math.log1p((mu / (copies * sampling)) ** 2 / rounds))


def _search(spent: Callable[[int], float], epsilon: float, index: int) -> int | None:
    """The least index at which a falling function is at most ε, looking near ``index`` first."""
    low, high, slope, before = _LOWEST, _HIGHEST + 1, 1.0, (0.0, 0.0)
    while high - low > 1:
        index = min(max(index, low + 1), high - 1)
        found = spent(index)
        low, high = (low, index) if found <= epsilon else (index, high)
        if not 0.0 < found < math.inf:
            index += _STEPS if found else -_STEPS
            continue
        here = math.log(multiplier_at(index)), math.log(found / epsilon)
        if before[0] and before[0] != here[0]:  # ln ε falls about linearly in ln of the multiplier
            slope = max(0.1, (before[1] - here[1]) / (here[0] - before[0]))
        before = here
        index = _index_above(math.exp(here[0] + here[1] / slope))
    return None if high > _HIGHEST else high
