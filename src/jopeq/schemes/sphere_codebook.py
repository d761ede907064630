"""The codebook of ``sphere``: rotation, vectors, scores, and the draw of an index.

All of it is a function of the plan, of the stream that both ends share, and of a client's number.
Scores and sums are whole numbers, so that every machine and every order of adding agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from jopeq import kernels
from jopeq.errors import PayloadError
from jopeq.random import normal
from jopeq.random.streams import SharedStream
from jopeq.schemes.sphere_plan import WORD, SpherePlan
from jopeq.wire.entries import Entries
from jopeq.wire.samples import hadamard
from jopeq.wire.scaling import Scale

Array = NDArray[np.float64]

MOST_CLIENTS = (1 << 32) - 2  # each has a lane of the shared stream; the last two hold the signs
_ONE = float(1 << 30)  # rotated updates as whole numbers, so that scores are exact
_CHUNK = 1 << 17
_FRACTION = 52  # bits of a weight


def scaled(entries: Entries, scales: list[Scale]) -> Array:
    """All entries in units of ``clip``, in one row."""
    pieces = [piece for _, piece in entries.read(0, entries.count)]
    return scales[0].apply(np.concatenate(pieces))


def report_bytes(plan: SpherePlan) -> int:
    """What an index takes: little-endian."""
    return -(-plan.bits // 8)


def to_bytes(index: int, plan: SpherePlan) -> bytes:
    """The index in a report's bytes."""
    return index.to_bytes(report_bytes(plan), "little")


def from_bytes(body: bytes | memoryview, plan: SpherePlan) -> int:
    """The index in a report; raises ``PayloadError`` where no codeword has that index."""
    if len(body) != report_bytes(plan):
        raise PayloadError(f"a report has {report_bytes(plan)} bytes, this one has {len(body)}")
    index = int.from_bytes(body, "little")
    if index >= plan.codewords:
        raise PayloadError(f"index {index} is beyond the {plan.codewords} codewords")
    return index


def into_ball(update: Array) -> tuple[Array, bool]:
    """The update, shortened to length 1 if it is longer, and whether it was; NaN counts as 0."""
    update = np.clip(np.nan_to_num(update, nan=0.0), -1e150, 1e150)
    norm = math.sqrt(float(update @ update))
    return (update / norm if norm > 1.0 else update), norm > 1.0 + 1e-9


# The rotation: x′ = H·D₂·H·D₁·x


@lru_cache(maxsize=8)
def _signs(key: bytes, padded: int) -> tuple[Array, Array]:
    shared = SharedStream(key)
    first, second = (
        1.0
        - 2.0
        * np.unpackbits(
            shared.read(lane=lane, start=0, count=padded // 8), bitorder="little"
        ).astype(np.float64)
        for lane in (MOST_CLIENTS, MOST_CLIENTS + 1)
    )
    return first, second


def rotated(update: Array, plan: SpherePlan, shared: SharedStream) -> NDArray[np.int32]:
    """An update in the ball, after two rounds of signs and Hadamard, in multiples of 2⁻³⁰."""
    first, second = _signs(shared.key_words.tobytes(), plan.padded)
    padded = np.zeros(plan.padded)
    padded[: len(update)] = update
    turned = _transformed(second * _transformed(first * padded))
    return np.clip(np.floor(turned * _ONE + 0.5), -_ONE, _ONE).astype(np.int32)


def decoded(total: NDArray[np.int64], plan: SpherePlan, shared: SharedStream) -> Array:
    """A sum of codewords' draws, rotated back and multiplied by the plan's scale."""
    first, second = _signs(shared.key_words.tobytes(), plan.padded)
    turned = first * _transformed(second * _transformed(total.astype(np.float64)))
    return turned[: plan.dimension] * plan.scale


def _transformed(values: Array) -> Array:
    if kernels.are_loaded():
        return kernels.hadamard(values)
    return hadamard(values)


# The codebook: lane c of the shared stream is client c's


def _blocks_bytes(plan: SpherePlan) -> int:
    """A 32-bit word for the block of every vector comes first, then the vectors' draws."""
    return -(-4 * plan.vectors // 64) * 64


def _vector_draws(
    plan: SpherePlan, shared: SharedStream, client: int, first: int, count: int
) -> NDArray[np.int16]:
    """Vectors first…first + count of a client, in rows."""
    start = _blocks_bytes(plan) // 2 + first * plan.block
    words = shared.words16(lane=client, start=start, count=count * plan.block)
    return normal.draws()[words].reshape(count, plan.block)


def _vector_blocks(plan: SpherePlan, shared: SharedStream, client: int) -> NDArray[np.int64]:
    words = shared.words32(lane=client, start=0, count=plan.vectors)
    return (words & np.uint32(plan.blocks - 1)).astype(np.int64)


def scores(
    turned: NDArray[np.int32], plan: SpherePlan, shared: SharedStream, client: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(⟨u, x_b⟩, the first draw, the block) of every vector; exact whole numbers."""
    blocks = _vector_blocks(plan, shared, client)
    if kernels.are_used(plan.vectors * plan.block):
        products, firsts = kernels.codeword_scores(
            turned, blocks, plan.block, _blocks_bytes(plan), shared, client
        )
        return products, firsts, blocks
    rows = turned.reshape(plan.blocks, plan.block)
    products, firsts = np.empty((2, plan.vectors), dtype=np.int64)
    step = max(1, _CHUNK // plan.block)
    for first in range(0, plan.vectors, step):
        here = slice(first, min(first + step, plan.vectors))
        draws = _vector_draws(plan, shared, client, first, here.stop - first).astype(np.int64)
        products[here] = np.einsum("ij,ij->i", draws, rows[blocks[here]])
        firsts[here] = draws[:, 0]
    return products, firsts, blocks


def add_codewords(
    clients: NDArray[np.int64],
    indices: NDArray[np.int64],
    plan: SpherePlan,
    shared: SharedStream,
    total: NDArray[np.int64],
) -> None:
    """total += the ±draws of the codewords that so many clients name, each on its block."""
    signed = _parts(indices, plan)  # (reports, L)
    vectors = (signed >> 1) + plan.pairs * np.arange(plan.lists)
    if kernels.are_used(clients.size * plan.lists * plan.block):
        kernels.add_codewords(
            np.repeat(clients, plan.lists).astype(np.uint32),
            vectors.ravel(),
            (signed & 1).ravel().astype(np.bool_),
            plan.block,
            _blocks_bytes(plan),
            shared,
            total,
        )
        return
    rows = total.reshape(plan.blocks, plan.block)
    for client, own, signs in zip(clients.tolist(), vectors, signed & 1, strict=True):
        blocks = _vector_blocks(plan, shared, client)
        for vector, is_negative in zip(own.tolist(), signs.tolist(), strict=True):
            draws = _vector_draws(plan, shared, client, vector, 1)[0]
            rows[blocks[vector]] += -draws if is_negative else draws


def _parts(indices: NDArray[np.int64], plan: SpherePlan) -> NDArray[np.int64]:
    """Which signed vector of each list an index names; the last list has the lowest bits."""
    width = plan.pairs.bit_length()
    shifts = width * np.arange(plan.lists - 1, -1, -1)
    return (indices[:, None] >> shifts) & (2 * plan.pairs - 1)


# Weights and the draw


def weights(
    turned: NDArray[np.int32], plan: SpherePlan, shared: SharedStream, client: int
) -> tuple[NDArray[np.int64], list[int], int]:
    """(indices of the combinations of members, their counts, how many counts were cut)."""
    products, firsts, blocks = scores(turned, plan, shared, client)
    rows = turned.reshape(plan.blocks, plan.block).astype(np.int64)
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows).astype(np.float64))
    own = lengths[blocks]
    # a block of zeros scores as any direction would
    score = np.where(own > 0.0, products / np.where(own > 0.0, own, 1.0), firsts)
    mean = _left_to_right(lengths) / plan.blocks
    weight, index = np.array([mean]), np.zeros(1, dtype=np.int64)
    for number in range(plan.lists):
        of_list = slice(number * plan.pairs, (number + 1) * plan.pairs)
        order = np.argsort(-np.abs(score[of_list]), kind="stable")[: plan.members]
        length = own[of_list][order]
        if plan.members > 1:
            others = (_left_to_right(length) - length) / (plan.members - 1)
        else:
            others = np.array([mean])
        weight = np.add.outer(weight, length - others).ravel()
        signed = 2 * order + (score[of_list][order] < 0.0)
        index = np.add.outer(index << plan.pairs.bit_length(), signed).ravel()
    weight *= math.sqrt(plan.blocks) / _ONE
    counts = [
        int(fixed) * plan.unit >> _FRACTION
        for fixed in (np.clip(weight, -4.0, 4.0) * float(1 << _FRACTION)).tolist()
    ]
    kept = plan.allowed(counts)
    rounding = plan.unit >> 20
    cut = sum(abs(count - after) > rounding for count, after in zip(counts, kept, strict=True))
    return index, kept, cut


def _left_to_right(values: Array) -> float:
    return float(np.add.accumulate(values)[-1])


def drawn(
    members: NDArray[np.int64],
    counts: Sequence[int],
    plan: SpherePlan,
    words: NDArray[np.uint64],
) -> NDArray[np.int64]:
    """Indices drawn with pairs of private words: the first chooses a member or none, then all."""
    words = words.reshape(-1, 2)
    total, ends = 0, []
    for count in counts:
        total += count
        ends.append(total)  # at most ``most_sum``, below 2⁶⁴
    places = np.searchsorted(np.array(ends, dtype=np.uint64), words[:, 0], side="right")
    uniform = (words[:, 1] & np.uint64(plan.codewords - 1)).astype(np.int64)
    return np.where(places < len(members), members[places % len(members)], uniform)


def chances(
    update: Array, plan: SpherePlan, shared: SharedStream, client: int = 0
) -> list[Fraction]:
    """The exact chance of every index, as fractions of 1."""
    inside, _ = into_ball(update)
    members, counts, _ = weights(rotated(inside, plan, shared), plan, shared, client)
    rest = Fraction(WORD - sum(counts), WORD * plan.codewords)
    found = [rest] * plan.codewords
    for index, count in zip(members.tolist(), counts, strict=True):
        found[index] += Fraction(count, WORD)
    return found
