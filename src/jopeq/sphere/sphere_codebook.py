"""The codebook of ``sphere``: rotation, vectors, scores, and the draw of an index.

Everything follows from the plan, the stream that both ends share, and a client's number. Scores and
sums are integers, so that every machine and every order of adding agree.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq import kernels
from jopeq.random import normal
from jopeq.random.streams import SharedStream
from jopeq.sphere.sphere_plan import SpherePlan
from jopeq.wire.rotation import hadamard, signs

Array = NDArray[np.float64]

MOST_CLIENTS = (1 << 32) - 2  # each has a lane of the shared stream; the last two hold the signs
_ONE = float(1 << 30)  # rotated updates as whole numbers, so that scores are exact
_CHUNK = 1 << 17
_FRACTION = 52  # bits of a weight


def into_ball(update: Array) -> Array:
    """Shorten an update to length 1 if it is longer; NaN counts as 0."""
    norm = math.sqrt(float(np.einsum("i,i->", update, update)))
    if not math.isfinite(norm):
        update = np.clip(np.nan_to_num(update, nan=0.0), -1e150, 1e150)
        norm = math.sqrt(float(np.einsum("i,i->", update, update)))
    return update / norm if norm > 1.0 else update


# The rotation: x′ = H·D₂·H·D₁·x


@lru_cache(maxsize=2)  # of one round; large updates have large signs
def _signs(key: bytes, padded: int) -> tuple[Array, Array]:
    shared = SharedStream(key)
    return signs(shared, 0, padded, MOST_CLIENTS), signs(shared, 0, padded, MOST_CLIENTS + 1)


def rotate(rows: Array, plan: SpherePlan, shared: SharedStream) -> NDArray[np.int32]:
    """Rotate updates in the ball, one row each; the result is in multiples of 2⁻³⁰."""
    first, second = _signs(shared.key_words.tobytes(), plan.padded)
    if kernels.are_loaded():
        whole = kernels.cpu.rotate_rows(np.atleast_2d(rows), first, second)
    else:
        whole = np.array([_rotate_row(row, first, second) for row in np.atleast_2d(rows)])
    return whole.reshape(*rows.shape[:-1], plan.padded)


def _rotate_row(row: Array, first: Array, second: Array) -> NDArray[np.int32]:
    padded = np.zeros(len(first))
    padded[: len(row)] = row
    turned = hadamard(second * hadamard(first * padded))
    return np.clip(np.floor(turned * _ONE + 0.5), -_ONE, _ONE).astype(np.int32)


def decode_sum(total: NDArray[np.int64], plan: SpherePlan, shared: SharedStream) -> Array:
    """Rotate a sum of codewords' draws back and multiply it by the plan's scale."""
    first, second = _signs(shared.key_words.tobytes(), plan.padded)
    turned = total.astype(np.float64)
    if kernels.are_loaded():
        turned = kernels.cpu.unrotate_row(turned, second)
    else:
        turned = hadamard(second * hadamard(turned))
    return (first * turned)[: plan.dimension] * plan.scale


# The codebook: lane c of the shared stream is client c's


def _blocks_bytes(plan: SpherePlan) -> int:
    """Bytes before the vectors' draws: a 32-bit word for the block of every vector."""
    return -(-4 * plan.vectors // 64) * 64


def _vector_draws(
    plan: SpherePlan, shared: SharedStream, client: int, first: int, count: int
) -> NDArray[np.int16]:
    """Vectors first…first + count of a client, one per row."""
    start = _blocks_bytes(plan) // 2 + first * plan.block
    words = shared.words16(lane=client, start=start, count=count * plan.block)
    return normal.draws()[words].reshape(count, plan.block)


def _vector_blocks(plan: SpherePlan, shared: SharedStream, client: int) -> NDArray[np.int64]:
    words = shared.words32(lane=client, start=0, count=plan.vectors)
    return (words & np.uint32(plan.blocks - 1)).astype(np.int64)


Scores = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def scores(
    turned: NDArray[np.int32], plan: SpherePlan, shared: SharedStream, clients: NDArray[np.int64]
) -> Scores:
    """(⟨u, x_b⟩, first draw, block) of every vector, one row per client; exact."""
    kernels.note(len(clients) * plan.vectors * plan.block)
    if kernels.are_loaded():
        return kernels.cpu.codeword_scores(
            turned, clients.astype(np.uint32), plan.vectors, plan.block, _blocks_bytes(plan), shared
        )
    products, firsts = np.empty((2, len(clients), plan.vectors), dtype=np.int64)
    blocks = np.array([_vector_blocks(plan, shared, client) for client in clients.tolist()])
    step = max(1, _CHUNK // plan.block)
    for row, client in enumerate(clients.tolist()):
        own = turned[row].reshape(plan.blocks, plan.block)
        for first in range(0, plan.vectors, step):
            here = slice(first, min(first + step, plan.vectors))
            draws = _vector_draws(plan, shared, client, first, here.stop - first).astype(np.int64)
            products[row, here] = np.einsum("ij,ij->i", draws, own[blocks[row, here]])
            firsts[row, here] = draws[:, 0]
    return products, firsts, blocks


def add_codewords(
    clients: NDArray[np.int64],
    indices: NDArray[np.int64],
    plan: SpherePlan,
    shared: SharedStream,
    total: NDArray[np.int64],
) -> None:
    """Add to ``total`` the ±draws of the codewords that clients name, each on its block."""
    signed = _parts(indices, plan)  # (reports, L)
    vectors = (signed >> 1) + plan.pairs * np.arange(plan.lists)
    kernels.note(clients.size * plan.lists * plan.block)
    if kernels.are_loaded():
        who = np.repeat(clients, plan.lists).astype(np.uint32)
        is_negative = (signed & 1).ravel().astype(np.bool_)
        layout = (plan.block, _blocks_bytes(plan), shared)
        kernels.cpu.add_codewords(who, vectors.ravel(), is_negative, *layout, total)
        return
    rows = total.reshape(plan.blocks, plan.block)
    for client, own, own_signs in zip(clients.tolist(), vectors, signed & 1, strict=True):
        blocks = _vector_blocks(plan, shared, client)
        for vector, is_negative in zip(own.tolist(), own_signs.tolist(), strict=True):
            draws = _vector_draws(plan, shared, client, vector, 1)[0]
            rows[blocks[vector]] += -draws if is_negative else draws


def _parts(indices: NDArray[np.int64], plan: SpherePlan) -> NDArray[np.int64]:
    """The signed vector of each list that an index names; the last list has the lowest bits."""
    width = plan.pairs.bit_length()
    shifts = width * np.arange(plan.lists - 1, -1, -1)
    return (indices[:, None] >> shifts) & (2 * plan.pairs - 1)


# Weights and the draw

Weights = tuple[NDArray[np.int64], NDArray[np.object_]]
"""Indices of the combinations of members, and their counts; one row per client."""


def weights(
    turned: NDArray[np.int32],
    plan: SpherePlan,
    shared: SharedStream,
    clients: NDArray[np.int64],
) -> Weights:
    """Weigh rotated updates, one row per client."""
    rows = turned.reshape(len(clients), plan.blocks, plan.block)
    squares = np.einsum("cij,cij->ci", rows, rows, dtype=np.int64)
    products, firsts, blocks = scores(turned, plan, shared, clients)
    lengths = np.sqrt(squares.astype(np.float64))
    own = np.take_along_axis(lengths, blocks, axis=1)
    # a block of zeros scores as any direction would
    score = np.where(own > 0.0, products / np.where(own > 0.0, own, 1.0), firsts)
    mean = _left_to_right(lengths) / plan.blocks
    weight, index = mean, np.zeros(mean.shape, dtype=np.int64)
    for number in range(plan.lists):
        of_list = slice(number * plan.pairs, (number + 1) * plan.pairs)
        order = np.argsort(-np.abs(score[:, of_list]), axis=1, kind="stable")[:, : plan.members]
        length = np.take_along_axis(own[:, of_list], order, axis=1)
        if plan.members > 1:
            others = (_left_to_right(length) - length) / (plan.members - 1)
        else:
            others = mean
        signed = 2 * order + (np.take_along_axis(score[:, of_list], order, axis=1) < 0.0)
        weight = _combine(weight, length - others)
        index = _combine(index << plan.pairs.bit_length(), signed)
    fixed = np.clip(weight * (math.sqrt(plan.blocks) / _ONE), -4.0, 4.0) * float(1 << _FRACTION)
    counts = fixed.astype(np.int64).astype(np.object_) * plan.unit >> _FRACTION
    return index, plan.allow(counts)


def _combine(one: NDArray[Any], two: NDArray[Any]) -> NDArray[Any]:
    """All sums of an entry of ``one`` and an entry of ``two``, row by row."""
    sums: NDArray[Any] = one[:, :, None] + two[:, None, :]
    return sums.reshape(len(one), -1)


def _left_to_right(values: Array) -> Array:
    """Add up every row, in the same order on all machines."""
    return np.add.accumulate(values, axis=1)[:, -1:]


def draw_indices(
    members: NDArray[np.int64],
    counts: NDArray[np.object_],
    plan: SpherePlan,
    words: NDArray[np.uint64],
) -> NDArray[np.int64]:
    """Draw an index with each pair of private words.

    The first word chooses a member or none; if none, the second chooses among all codewords.
    ``members`` and ``counts`` have one row per pair, or one row for all.
    """
    words = words.reshape(-1, 2)
    # at most ``most_sum``, below 2⁶⁴
    ends = np.add.accumulate(np.atleast_2d(counts), axis=1).astype(np.uint64)
    places = (ends <= words[:, :1]).sum(axis=1)
    rows = np.broadcast_to(members, (len(words), members.shape[-1]))
    chosen = rows[np.arange(len(words)), places % members.shape[-1]]
    uniform = (words[:, 1] & np.uint64(plan.codewords - 1)).astype(np.int64)
    return np.where(places < members.shape[-1], chosen, uniform)
