# mypy: ignore-errors
# ruff: noqa: N803, N806 (Triton's spelling of compile-time numbers)
"""The Triton kernels of ``sphere``: blocks of vectors, scores of updates, sums of reports.

One lane of a tensor draws 32 numbers of a vector: one ChaCha block of its client's stream.
"""

from __future__ import annotations

from jopeq.kernels.gpu import chacha
from jopeq.kernels.gpu.jit import jit, tl
from jopeq.kernels.gpu.rows import key_of


@jit
def _draw(draws_ptr, word):
    return tl.load(draws_ptr + word.to(tl.int32)).to(tl.int64)


@jit(do_not_specialize=["items", "last"])
def choose_blocks(
    clients_ptr, vectors_ptr, blocks_ptr, items, last, k0, k1, k2, k3, k4, k5, k6, k7,
    ITEMS: tl.constexpr,
):  # fmt: skip
    """The block that each vector of each client lies on: a word of the client's stream."""
    item = tl.program_id(0) * ITEMS + tl.arange(0, ITEMS)
    is_there = item < items
    client = tl.load(clients_ptr + item, mask=is_there, other=0).to(tl.uint32, bitcast=True)
    vector = tl.load(vectors_ptr + item, mask=is_there, other=0)
    key = key_of(k0, k1, k2, k3, k4, k5, k6, k7)
    words = chacha.block_of(key, (vector // 16).to(tl.uint32), client)
    chosen = words[0]
    for i in tl.static_range(1, 16):
        chosen = tl.where(vector % 16 == i, words[i], chosen)
    tl.store(blocks_ptr + item, chosen.to(tl.int32, bitcast=True) & last, mask=is_there)


@jit(do_not_specialize=["reports", "offset"])
def add_reports(
    total_ptr, draws_ptr, clients_ptr, vectors_ptr, signs_ptr, blocks_ptr, reports, offset,
    k0, k1, k2, k3, k4, k5, k6, k7, SIZE: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """total += ±draws of each report's vector, on its block. Whole numbers: no order matters."""
    PER: tl.constexpr = SIZE // 32
    lane = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    report, row = lane // PER, (lane % PER).to(tl.int32)
    is_there = report < reports
    client = tl.load(clients_ptr + report, mask=is_there, other=0).to(tl.uint32, bitcast=True)
    vector = tl.load(vectors_ptr + report, mask=is_there, other=0)
    sign = tl.load(signs_ptr + report, mask=is_there, other=0).to(tl.int64)
    place = tl.load(blocks_ptr + report, mask=is_there, other=0).to(tl.int64) * SIZE + row * 32
    key = key_of(k0, k1, k2, k3, k4, k5, k6, k7)
    words = chacha.block_of(key, (offset + vector * PER + row).to(tl.uint32), client)
    at = total_ptr + place
    for i in tl.static_range(16):
        low, high = _draw(draws_ptr, words[i] & 0xFFFF), _draw(draws_ptr, words[i] >> 16)
        tl.atomic_add(at + 2 * i, low * sign, mask=is_there, sem="relaxed")
        tl.atomic_add(at + (2 * i + 1), high * sign, mask=is_there, sem="relaxed")


@jit(do_not_specialize=["items", "vectors", "offset"])
def score_vectors(
    turned_ptr, draws_ptr, clients_ptr, blocks_ptr, products_ptr, firsts_ptr, items, vectors,
    padded, offset, k0, k1, k2, k3, k4, k5, k6, k7,
    SIZE: tl.constexpr, VECTORS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """⟨u, x_b⟩ and the first draw of every vector of every client; LANES lanes for a vector."""
    PER: tl.constexpr = SIZE // 32
    item = tl.program_id(0) * VECTORS + tl.arange(0, VECTORS)
    is_there = item < items
    own, vector = item // vectors, item % vectors
    client = tl.load(clients_ptr + own, mask=is_there, other=0).to(tl.uint32, bitcast=True)
    block = tl.load(blocks_ptr + item, mask=is_there, other=0)
    base = own.to(tl.int64) * padded + block.to(tl.int64) * SIZE
    lane = tl.arange(0, LANES)
    key = key_of(k0, k1, k2, k3, k4, k5, k6, k7)
    total = tl.zeros((VECTORS, LANES), tl.int64)
    for start in range(0, PER, LANES):
        row = start + lane
        counter = (offset + vector * PER)[:, None] + row[None, :]
        words = chacha.block_of(key, counter.to(tl.uint32), client[:, None])
        at = turned_ptr + (base[:, None] + row[None, :] * 32)
        for i in tl.static_range(16):
            low, high = _draw(draws_ptr, words[i] & 0xFFFF), _draw(draws_ptr, words[i] >> 16)
            two = (at + 2 * i).to(tl.pointer_type(tl.int64), bitcast=True)
            pair = tl.load(two, mask=is_there[:, None], other=0)
            total += low * pair.to(tl.int32).to(tl.int64) + high * (pair >> 32)
            if i == 0:
                is_first = (row == 0)[None, :]
                first = tl.sum(tl.where(is_first, low, 0), axis=1)
                tl.store(firsts_ptr + item, first, mask=is_there & (start == 0))
    tl.store(products_ptr + item, tl.sum(total, axis=1), mask=is_there)
