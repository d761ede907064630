"""Channels of least error for a given ε and number of letters.

The programmes of :mod:`jopeq.channel_program` are solved for a Gaussian of deviation 1/3 clipped to
[−1, 1], rounded to integers on the private side and verified in exact arithmetic
(:mod:`jopeq.channel_tables`). All is mirror-symmetric and deterministic. The adversary is the
server, who knows payload, dither and channel. Nothing here draws randomness.

>>> channel = optimal_channel(4.0, 8)
>>> channel.letters, channel.epsilon <= 4.0, f"{channel.gaussian_distortion():.3f}"
(8, True, '0.076')
"""

from __future__ import annotations

import json
import sys
from functools import lru_cache
from pathlib import Path

from jopeq.channel import Channel
from jopeq.channel_program import SIGMA, Problem, design, relax
from jopeq.channel_response import best_response, check_epsilon, check_letters
from jopeq.channel_tables import realise, shipped_bound, shipped_channel, to_entry
from jopeq.errors import DesignError

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
    if not MIN_DESIGNED_EPSILON <= epsilon <= MAX_DESIGNED_EPSILON:
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
        found.table,
        found.values,
        epsilon=epsilon,
        weights=problem.weights,
        is_dither_shared=False,
    )


def regenerate(path: Path, epsilons: tuple[float, ...], letters: tuple[int, ...]) -> None:
    """Write the shipped table afresh and print it as Markdown."""
    channels, bounds = {}, {}
    head = "| ε | letters | best response | ours (levels → letters) | lower bound | gain |"
    sys.stdout.write(f"{head}\n|---|---|---|---|---|---|\n")
    for epsilon in epsilons:
        bounds[repr(epsilon)] = bound = solve_bound(epsilon)
        for most in letters:
            channel = solve_channel(epsilon, most)
            channels[f"{epsilon!r} {most}"] = to_entry(channel)
            ours = channel.gaussian_distortion()
            response = best_response(epsilon, most, sigma=SIGMA)
            theirs = response.gaussian_distortion()
            sizes = f"{channel.levels} → {channel.letters}"
            sys.stdout.write(
                f"| {epsilon} | {most} | {theirs:.5f} ({response.letters}) | {ours:.5f} ({sizes}) "
                f"| {bound:.5f} | {1 - ours / theirs:.1%} |\n"
            )
            sys.stdout.flush()
    table = {"bounds": bounds, "channels": channels}
    path.write_text(json.dumps(table, separators=(",", ":")) + "\n", "ascii")


if __name__ == "__main__":
    regenerate(
        Path(__file__).parent / "data" / "channels.json",
        epsilons=(0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0),
        letters=(4, 8, 16, 32),
    )
