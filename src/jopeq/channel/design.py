"""Channels of least error for a given ε and number of letters.

Linear programmes are solved for a Gaussian of deviation 1/3 clipped to [−1, 1]; their solutions are
rounded to integers on the private side and verified in exact arithmetic
(:mod:`jopeq.channel.tables`). All channels are mirror-symmetric, and nothing is random. The
adversary is the server, who knows payload, dither and channel.

>>> channel = optimal_channel(4.0, 8)
>>> channel.letters, channel.epsilon <= 4.0, f"{channel.gaussian_distortion():.3f}"
(8, True, '0.076')
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.channel.channel import Channel, level_positions, level_weights
from jopeq.channel.response import best_response, check_epsilon, check_letters
from jopeq.channel.tables import realise, shipped_bound, shipped_channel
from jopeq.errors import DesignError

Floats = NDArray[np.float64]

SIGMA = 1 / 3  # of the Gaussian entries, clipped to [−1, 1], that the error is averaged over
_TOLERANCE = 1e-6  # of a relaxation: the share by which it may miss its bound


def _linprog(cost: Floats, **constraints: Any) -> Any:
    from scipy.optimize import linprog

    for tolerance in (1e-10, 1e-7):  # large ε cannot always be solved to the finer one
        options = {f"{side}_feasibility_tolerance": tolerance for side in ("primal", "dual")}
        result = linprog(cost, method="highs", options={**options, "time_limit": 20}, **constraints)
        if result.status == 0:
            break
    return result


@dataclass(frozen=True)
class Relaxation:
    """The optimum with unlimited letters: its value, a proven bound, values and their masses."""

    error: float
    bound: float
    values: tuple[float, ...]
    masses: tuple[float, ...]


@dataclass(frozen=True)
class Problem:
    """One linear programme's data: ε, the number of levels and how often each is met."""

    epsilon: float
    levels: int
    is_uniform: bool = False

    @cached_property
    def positions(self) -> Floats:
        return level_positions(self.levels)

    @cached_property
    def weights(self) -> Floats:
        if self.is_uniform:
            return np.full(self.levels, 1 / self.levels)
        return level_weights(self.levels, SIGMA)

    @property
    def dither_error(self) -> float:
        """Δ²/12 of a shared dither; under uniform weights rounding is private and costs none."""
        return 0.0 if self.is_uniform else 1 / (3 * (self.levels - 1) ** 2)


@lru_cache(maxsize=512)
def relax(problem: Problem) -> Relaxation:
    """Solve with unlimited letters by column generation.

    Extremal letters are (s, y) with s_j in {1, e^ε}: P(l|j) = m s_j. Given the duals λ_j, μ_j of
    the two equations, the reduced cost of (s, y) is Σ_j s_j (w_j (y−v_j)² − λ_j − μ_j y). The best
    s is e^ε where the bracket is negative; that set changes only at the roots of K quadratics,
    and between two roots the best y is explicit: the pricing is exact over all real y. As
    Σ_l m_l ≤ 1, the programme's value plus the least reduced cost is a lower bound.
    """
    v, w, levels = problem.positions, problem.weights, problem.levels
    ratio, rows, half = math.exp(problem.epsilon), (levels + 1) // 2, levels // 2
    top = 1.5 * (ratio + 1) / (ratio - 1) + 0.5
    shapes, values = _first_columns(levels, ratio, top)
    target = np.concatenate([np.ones(rows), v[:half]])
    bound = -math.inf
    for _ in range(200):
        mirrored = shapes[:, ::-1]
        matrix = np.hstack(
            [(shapes + mirrored)[:, :rows], ((shapes - mirrored) * values[:, None])[:, :half]]
        )
        cost = 2 * (shapes * (values[:, None] - v) ** 2) @ w
        # in units of the larger probability, e^ε m, all coefficients stay near 1
        result = _linprog(cost / ratio, A_eq=matrix.T / ratio, b_eq=target)
        if result.status != 0:
            raise DesignError(f"the relaxation of {problem} failed: {result.message}")
        dual = result.eqlin.marginals
        row_price, bias_price = np.zeros(levels), np.zeros(levels)
        row_price[:rows] += dual[:rows] / 2
        row_price[::-1][:rows] += dual[:rows] / 2
        bias_price[:half] += dual[rows:] / 2
        bias_price[::-1][:half] -= dual[rows:] / 2
        new_shapes, new_values, reduced = _price(v, w, ratio, row_price, bias_price)
        bound = max(bound, result.fun + min(0.0, float(reduced.min())))
        if result.fun - bound <= _TOLERANCE * result.fun:
            break
        rank = cost - matrix @ dual
        kept = rank <= np.sort(rank)[min(len(rank), 16 * levels) - 1]
        kept[:levels] = True  # the randomized response, so that it stays feasible
        useful = reduced < 0
        shapes = np.vstack([shapes[kept], new_shapes[useful]])
        values = np.concatenate([values[kept], new_values[useful]])
    else:
        raise DesignError(f"the relaxation of {problem} did not converge")
    used = result.x > 1e-10
    masses = result.x[used] * shapes[used].mean(axis=1)
    return Relaxation(
        float(result.fun) + problem.dither_error,
        float(bound) + problem.dither_error,
        tuple((-np.abs(values[used])).tolist()),
        tuple(masses.tolist()),
    )


def _first_columns(levels: int, ratio: float, top: float) -> tuple[Floats, Floats]:
    """Randomized response (so that the programme is feasible) and many intervals of levels."""
    gain = (ratio + levels - 1) / (ratio - 1)
    shapes = [np.ones((levels, levels)) + (ratio - 1) * np.eye(levels)]
    values = [gain * level_positions(levels)]
    grid = np.linspace(-top, 0, 17)
    for width in range(1, levels):
        for first in range(levels - width + 1 if width <= max(2, levels // 6) else 1):
            shape = np.ones(levels)
            shape[first : first + width] = ratio
            shapes.append(np.tile(shape, (len(grid), 1)))
            values.append(grid)
    return np.vstack(shapes), np.concatenate(values)


def _price(
    v: Floats, w: Floats, ratio: float, row_price: Floats, bias_price: Floats
) -> tuple[Floats, Floats, Floats]:
    """All candidates (s, y) for the least reduced cost, one for each interval between roots."""
    centre = v + bias_price / (2 * w)
    square = centre**2 - v**2 + row_price / w  # the bracket is w ((y − centre)² − square)
    reach = np.sqrt(np.maximum(square, 0))
    ends = np.unique(np.concatenate([centre - reach, centre + reach]))
    inner = np.concatenate([[ends[0] - 1], (ends[:-1] + ends[1:]) / 2, [ends[-1] + 1]])
    shapes = np.where((inner[:, None] - centre) ** 2 < square, ratio, 1.0)
    shapes = np.unique(shapes, axis=0)
    values = (shapes @ (w * centre)) / (shapes @ w)
    reduced = np.sum(shapes * w * ((values[:, None] - centre) ** 2 - square), axis=1)
    return shapes, values, reduced


@dataclass(frozen=True)
class Design:
    """A real channel with few letters: error (dither included), K × J table, and values."""

    error: float
    table: Floats
    values: Floats


def _starting_values(problem: Problem, letters: int) -> list[Floats]:
    """Lower halves of decoders to start from: the relaxation's values merged, and a response's."""
    half = letters // 2
    relaxed = relax(problem)
    order = np.argsort(relaxed.values)
    values = [relaxed.values[i] for i in order]
    masses = [relaxed.masses[i] for i in order]
    while len(values) > half + letters % 2:  # Ward's rule: the merger that moves least
        pairs = range(len(values) - 1)
        i = min(
            pairs,
            key=lambda i: (values[i] - values[i + 1]) ** 2 / (1 / masses[i] + 1 / masses[i + 1]),
        )
        mass = masses[i] + masses[i + 1]
        mean = (masses[i] * values[i] + masses[i + 1] * values[i + 1]) / mass
        values[i : i + 2], masses[i : i + 2] = [mean], [mass]
    values = values[:half]
    while len(values) < half:
        values.append(values[-1] / 2)
    starts = [np.array(values)]
    if problem.levels == letters:
        ratio = math.exp(problem.epsilon)
        starts.append((ratio + letters - 1) / (ratio - 1) * problem.positions[:half])
    return starts


def _improve(
    problem: Problem, letters: int, values: Floats, pivot: Floats, radius: float
) -> tuple[float, Floats, Floats] | None:
    """The programme for P with the values free to move by ``radius``, linearised at ``pivot``.

    Returns (error, upper rows of P, move of the lower half of the values); with radius 0 the
    values stay and the programme is exact. None if it is infeasible.
    """
    from scipy import sparse

    v, levels, ratio = problem.positions, problem.levels, math.exp(problem.epsilon)
    rows, pairs, half, kinds = (levels + 1) // 2, levels // 2, letters // 2, (letters + 1) // 2
    size = rows * letters
    decoder = np.concatenate([values, np.zeros(letters % 2), -values[::-1]])
    weights = np.where(np.arange(rows) < pairs, 2.0, 1.0) * problem.weights[:rows]
    slope = weights[:, None] * (decoder - v[:rows, None])
    cost = np.zeros(size + kinds + half)
    cost[:size] = (slope * (decoder - v[:rows, None])).ravel()
    pull = np.sum(2 * slope * pivot, axis=0)
    cost[size + kinds :] = (pull - pull[::-1])[:half]

    equal = np.zeros((rows + pairs + (half if levels % 2 else 0), len(cost)))
    equal[:rows, :size] = np.kron(np.eye(rows), np.ones(letters))
    equal[rows : rows + pairs, : pairs * letters] = np.kron(np.eye(pairs), decoder)
    equal[rows : rows + pairs, size + kinds :] = (pivot - pivot[:, ::-1])[:pairs, :half]
    if levels % 2:  # the middle level's row is its own mirror image
        equal[rows + pairs :, size - letters : size] = (np.eye(letters) - np.eye(letters)[::-1])[
            :half
        ]
    target = np.concatenate([np.ones(rows), v[:pairs], np.zeros(len(equal) - rows - pairs)])

    # columns size.. are the largest probabilities e^ε m_l: P ≤ e^ε m and e^ε m / e^ε ≤ P
    fold = np.minimum(np.arange(letters), np.arange(letters)[::-1])
    kind = sparse.csr_matrix(np.tile(np.eye(kinds)[fold], (rows, 1)))
    still = sparse.csr_matrix((size, half))
    unit = sparse.identity(size, format="csr")
    below = sparse.bmat([[unit, -kind, still], [-unit, kind / ratio, still]], format="csr")
    bounds = [(0.0, None)] * (size + kinds) + [(-radius, radius)] * half
    limits = {"A_ub": below, "b_ub": np.zeros(2 * size), "bounds": bounds}
    result = _linprog(cost, A_eq=sparse.csr_matrix(equal), b_eq=target, **limits)
    if result.status != 0:
        return None
    return float(result.fun), result.x[:size].reshape(rows, letters), result.x[size + kinds :]


def _fixed(problem: Problem, letters: int, values: Floats) -> tuple[float, Floats, Floats] | None:
    return _improve(problem, letters, values, np.zeros(((problem.levels + 1) // 2, letters)), 0.0)


def design(problem: Problem, letters: int, *, steps: int = 60) -> Design | None:
    """A locally optimal channel with this many letters, or None where no start is feasible.

    Moves the values by sequential linear programming: a step is kept if the exact programme at
    the new values is better; the trust region then grows, else it shrinks.
    """
    best: tuple[float, Floats, Floats] | None = None
    for values in _starting_values(problem, letters):
        found = _fixed(problem, letters, values)
        for _ in range(30):  # too narrow a decoder cannot be unbiased
            if found is not None:
                break
            values = np.concatenate([values[:1] * 1.1, values[1:]])
            found = _fixed(problem, letters, values)
        if found is None:
            continue
        error, upper, _ = found
        radius = 0.05 * abs(values[0])
        for _ in range(steps):
            moved = _improve(problem, letters, values, upper, radius)
            found = None if moved is None else _fixed(problem, letters, values + moved[2])
            if moved is not None and found is not None and found[0] < error * (1 - 1e-7):
                error, upper, values = found[0], found[1], values + moved[2]
                radius *= 1.5
            else:
                radius /= 3
            if radius < 1e-5:
                break
        if best is None or error < best[0]:
            best = (error, upper, values)
    if best is None:
        return None
    error, upper, values = best
    table = np.vstack([upper, upper[: problem.levels // 2, ::-1][::-1]])
    decoder = np.concatenate([values, np.zeros(letters % 2), -values[::-1]])
    return Design(error + problem.dither_error, table, decoder)


# Integer channels from the real ones


MAX_DESIGNED_LETTERS = 32
MIN_DESIGNED_EPSILON, MAX_DESIGNED_EPSILON = 0.1, 10.0


def _check_designed(epsilon: float) -> None:
    if not MIN_DESIGNED_EPSILON <= epsilon <= MAX_DESIGNED_EPSILON:
        raise ValueError(
            f"epsilon must be in [{MIN_DESIGNED_EPSILON}, {MAX_DESIGNED_EPSILON}] for a linear "
            f"programme, got {epsilon}: outside use scheme='response', which needs none there"
        )


def solve_channel(epsilon: float, max_letters: int) -> Channel:
    """Design a channel afresh, whatever the shipped table holds: see :func:`optimal_channel`.

    Levels from J/2 up are tried while ⌊K/2⌋ ≤ ⌊J/2⌋, so that the decoder can be exactly unbiased;
    the most promising ones are then polished.
    """
    response = best_response(epsilon, max_letters, sigma=SIGMA)
    best = response
    drafts: list[tuple[float, int, Problem]] = []
    is_large = max_letters > 16
    for letters in range(max(2, max_letters - (not is_large)), max_letters + 1):
        for levels in range(max(2, letters // 2), 2 * (letters // 2) + 2):
            problem = Problem(epsilon, levels)
            if relax(problem).bound < best.gaussian_distortion():
                draft = design(problem, letters, steps=0)
                if draft is not None:
                    drafts.append((draft.error, letters, problem))
    for _, letters, problem in sorted(drafts, key=lambda draft: draft[:2])[: 3 if is_large else 5]:
        found = design(problem, letters)
        if found is not None and found.error < best.gaussian_distortion():
            channel = realise(found.table, found.values, epsilon=epsilon, weights=problem.weights)
            best = min(best, channel, key=Channel.gaussian_distortion)
    return best


@lru_cache(maxsize=256)
def optimal_channel(epsilon: float, max_letters: int) -> Channel:
    """The channel of least Gaussian-averaged error found with at most ``max_letters`` letters.

    Never worse than the best randomized response, exactly ε-LDP against the server, unbiased to
    2**-28 of the largest value (most to 1e-15). Read from the shipped table where it holds this ε
    and number of letters (the same on every machine), else solved in seconds (another version of
    SciPy may then choose another channel: compare ``fingerprint`` before decoding). No more than
    32 letters are designed, and only for ε in [0.1, 10]; beyond, the response is returned.

    >>> response = best_response(6.0, 16, sigma=1 / 3)
    >>> optimal_channel(6.0, 16).gaussian_distortion() < 0.82 * response.gaussian_distortion()
    True
    """
    epsilon, max_letters = check_epsilon(epsilon), check_letters("max_letters", max_letters)
    # two letters ±y have the error y² − E v² + Δ²/12 over levels v, the least with levels ±1 alone
    if max_letters == 2 or not MIN_DESIGNED_EPSILON <= epsilon <= MAX_DESIGNED_EPSILON:
        return best_response(epsilon, max_letters, sigma=SIGMA)
    designed = min(max_letters, MAX_DESIGNED_LETTERS)
    channel = shipped_channel(epsilon, designed) or solve_channel(epsilon, designed)
    if max_letters == designed:
        return channel
    response = best_response(epsilon, max_letters, sigma=SIGMA)
    return min(channel, response, key=Channel.gaussian_distortion)


def best_channel(epsilon: float, max_letters: int) -> Channel:
    """The optimal channel where it wins by more than 2% over the best randomized response.

    Both are compared by ``gaussian_distortion()``; else the (simpler) response is returned.

    >>> best_channel(4.0, 8) == optimal_channel(4.0, 8)
    True
    >>> best_channel(4.0, 4) == best_response(4.0, 4, sigma=1 / 3)
    True
    """
    response = best_response(epsilon, max_letters, sigma=SIGMA)
    optimal = optimal_channel(epsilon, max_letters)
    wins = optimal.gaussian_distortion() < 0.98 * response.gaussian_distortion()
    return optimal if wins else response


@lru_cache(maxsize=256)
def lower_bound(epsilon: float) -> float:
    """No dithered channel of at most 33 levels has a smaller ``gaussian_distortion()``.

    For any number of letters: the least proven bound of the relaxations with K = 2..33.

    >>> print(f"{lower_bound(4.0):.4f}")
    0.0745
    """
    epsilon = check_epsilon(epsilon)
    _check_designed(epsilon)
    shipped = shipped_bound(epsilon)
    return solve_bound(epsilon) if shipped is None else shipped


def solve_bound(epsilon: float) -> float:
    """Compute :func:`lower_bound` afresh, whatever the shipped table holds."""
    return min(
        relax(Problem(epsilon, levels)).bound for levels in range(2, MAX_DESIGNED_LETTERS + 2)
    )


@lru_cache(maxsize=64)
def mvu_channel(epsilon: float, bits: int, input_bits: int | None = None) -> Channel:
    """The minimum-variance unbiased mechanism of Chaudhuri, Guo and Rabbat (2022), a baseline.

    2^input_bits levels (by default as many as letters), 2^bits letters, least variance averaged
    uniformly over the levels, unbiased at every level, e^ε between any two rows. Rounding to a
    level is stochastic and private: ``is_dither_shared`` is false and the server decodes
    ``values[l]``.

    >>> channel = mvu_channel(4.0, 1)
    >>> channel.letters, channel.is_dither_shared, f"{channel.distortion(0.0):.3f}"
    (2, False, '1.076')
    """
    epsilon = check_epsilon(epsilon)
    input_bits = bits if input_bits is None else input_bits
    for name, value in (("bits", bits), ("input_bits", input_bits)):
        if value not in range(1, 6):
            raise ValueError(
                f"{name} must be an integer from 1 to 5, got {value}: more than 32 letters or "
                "levels take too long to solve"
            )
    _check_designed(epsilon)
    problem = Problem(epsilon, 2**input_bits, is_uniform=True)
    found = design(problem, 2**bits)
    if found is None:
        raise DesignError(f"no MVU channel found for epsilon={epsilon}, bits={bits}")
    return realise(
        found.table, found.values, epsilon=epsilon, weights=problem.weights, is_dither_shared=False
    )
