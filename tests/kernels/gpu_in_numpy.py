"""What the Triton kernels compute from a plan, in NumPy: a stand-in where tests have no GPU.

Streams, samplers, lattices and packing are the library's; numbers and tables are the plan's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from jopeq.errors import PayloadError
from jopeq.kernels.gpu import arguments as plans
from jopeq.kernels.gpu import codec
from jopeq.kernels.gpu import entries as measuring
from jopeq.kernels.gpu.arguments import ROW, TILE, uses_triton
from jopeq.lattice.codebook import unit_dither
from jopeq.lattice.lattices import Lattice
from jopeq.noise import into_unit_ball
from jopeq.random import portable
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.wire.coders import Packing
from jopeq.wire.entries import LARGEST, READ_CHUNK, lane_sum

_MAX_COORDINATE = 2.0**50


def encode(plan, tensors, scales, shared_key, private_key, counts):
    """The letters of all tensors, packed as the kernel packs them, filled up to whole programs."""
    shared = SharedStream(np.array(shared_key, "<i4").tobytes())
    private = PrivateStream.reproducible(np.array(private_key, "<i4").tobytes())
    packed = []
    for start, entries, scale in codec.segments(tensors, scales):
        wide = entries.double().numpy()
        counts[2] += np.count_nonzero(~(np.abs(wide) <= LARGEST))
        x = (wide - scale.mean) * scale.inverse
        x[~np.isfinite(x)] = 0.0  # refused later; must not reach a table
        x = np.pad(x, (0, -len(x) % plan.dimension)).reshape(-1, plan.dimension)
        letters = _letters(plan, x, start // plan.dimension, shared, private, counts).reshape(-1)
        filled = np.pad(letters, (0, -len(letters) % plan.letters_in(TILE))).astype(np.int64)
        packed.append(_bits(plan).encode(filled))
        assert 8 * len(packed[-1]) == -(-len(wide) // TILE) * (TILE // ROW) * plan.row_bits
    return torch.frombuffer(bytearray(b"".join(packed)), dtype=torch.int32)


def _bits(plan):
    return Packing(1 << plan.width)


def _letters(plan, x, first, shared, private, counts):
    numbers, count, size = plan.numbers, len(x), plan.dimension
    each = 4 if plan.step == "chances" else 8
    assert plan.noise == "none" or plan.group * each == 64  # entries of a block, and their bytes
    if plan.is_clipped:
        x, clipped = into_unit_ball(x)
        counts[0] += clipped
    if plan.noise in ("laplace", "t"):
        limit = numbers["noise_limit"]
        x = (x + _noise(plan, private, first, count)).clip(-limit, limit)
    words = shared.words16(lane=0, start=first * size, count=count * size)
    if plan.step == "cells":
        dither = Lattice("A2", step=numbers["step"]).dither(words.reshape(-1, 2))
        return _in_cells(plan, x + dither, counts)
    x, unit = x[:, 0], unit_dither(words)
    if plan.step == "line":
        place = (x + unit * numbers["step"]) * numbers["inverse_step"] + numbers["centre"]
        return _within(np.floor(place), 0.0, numbers["letters"] - 1.0, counts)
    level = np.floor(x * numbers["step"] + (unit + numbers["centre"])).astype(np.int64)
    thresholds = plan.table.numpy().view(np.uint32).reshape(-1, plan.columns)
    drawn = private.words32(lane=0, start=first, count=count)
    return (thresholds[level] < drawn[:, None]).sum(axis=1)


def _within(cells, low, high, counts):
    inside = cells.clip(low, high)
    counts[1] += np.count_nonzero(inside != cells)
    return inside


def _noise(plan, private, first, count):
    numbers, size = plan.numbers, plan.dimension
    if plan.noise == "laplace":
        draws = portable.laplace(private, first * size, count * size) * numbers["noise_scale"]
        return draws.reshape(count, size)
    words = private.words64(lane=0, start=2 * first, count=2 * count)
    draws = portable.exponential_of(words[0::2], private, 0, 2 * first, 2)
    radius = np.sqrt(portable.expm1(draws * numbers["two_over_nu"]) * numbers["nu"])
    points = np.stack(portable.circle(words[1::2]), axis=1)
    return points * (radius * numbers["noise_scale"])[:, None]


def _in_cells(plan, x, counts):
    """Cells of A2 that are letters, found in the box; the nearest letter of the others."""
    numbers, points = plan.numbers, plan.points.numpy().reshape(-1, 2)
    *shift, inverse_y, low_x, low_y, extent_x, extent_y = (numbers[f"f{k}"] for k in range(7))
    frame = (x - shift) * (numbers["inverse_step"], inverse_y)
    counts[3] += np.count_nonzero(~(np.abs(frame) < _MAX_COORDINATE).all(axis=1))
    near = Lattice("A2").geometry.nearest(frame.T).T
    cell = np.stack((near[:, 0] - near[:, 1] - low_x, 2.0 * near[:, 1] - low_y), axis=1)
    is_boxed = ((cell >= 0.0) & (cell < (extent_x, extent_y))).all(axis=1)
    key = np.where(is_boxed, cell[:, 0] + cell[:, 1] * extent_x, 0.0).astype(np.int64)
    letters = np.where(is_boxed, plan.table.numpy()[key], -1)
    lost = letters < 0
    counts[1] += np.count_nonzero(lost)
    letters[lost] = np.square(x[lost, None] - points).sum(axis=2).argmin(axis=1)
    return letters


def decode(plan, out, packed, spans, key, weight):
    """Write or add the entries of all spans."""
    scaled = _scaled(
        plan, packed.numpy(), spans[-1][1], SharedStream(np.array(key, "<i4").tobytes())
    )
    for start, stop, scale in spans:
        with np.errstate(over="ignore"):  # refused later
            entries = (scaled[start:stop] * scale.unit + scale.mean).astype(np.float32)
        there, found = out[start:stop], torch.from_numpy(entries)
        there.copy_(found if weight is None else there.double() + found.double() * weight)


def _scaled(plan, packed, count, shared):
    numbers, samples = plan.numbers, -(-count // plan.dimension)
    letters = _bits(plan).unpack(packed.tobytes(), 8 * len(packed) // plan.width)[:samples]
    words = shared.words16(lane=0, start=0, count=samples * plan.dimension)
    if plan.step == "cells":
        dither = Lattice("A2", step=numbers["step"]).dither(words.reshape(-1, 2))
        return (plan.points.numpy().reshape(-1, 2)[letters] - dither).reshape(-1)
    unit = unit_dither(words)
    if plan.step == "line":
        return (letters - numbers["f0"]) * numbers["step"] - unit * numbers["step"]
    return plan.points.numpy()[letters] - unit * numbers["f0"]


def join(letters, count, packing):
    """The bytes of so many letters in mixed radix."""
    return torch.frombuffer(bytearray(packing.encode(letters[:count].numpy())), dtype=torch.uint8)


def split(words, letters, count, numbers, packing):
    """Fill in the letters; whether any is outside the codebook."""
    body = words.numpy().tobytes()[: packing.size(count)]
    try:
        letters[:count] = torch.from_numpy(packing.unpack(body, count)).to(letters.dtype)
    except PayloadError:
        return True
    return False


def chunk_sums(tensor, mean, is_square):
    """``lane_sum`` of every chunk."""
    values = tensor.double().numpy().reshape(-1)
    terms = np.square(values - mean) if is_square else values
    starts = range(0, len(terms), READ_CHUNK)
    return torch.tensor([lane_sum(terms[i : i + READ_CHUNK]) for i in starts], dtype=torch.float64)


def stand_in(monkeypatch: Any) -> None:
    """Let NumPy do what Triton does, on devices where Triton does not run."""
    for part in (encode, decode, join, split):
        name = f"{part.__name__}_with_triton"
        monkeypatch.setattr(codec, name, _dispatch(getattr(codec, name), part))
    monkeypatch.setattr(measuring, "chunk_sums", _dispatch(measuring.chunk_sums, chunk_sums))
    monkeypatch.setattr(plans, "uses_triton", lambda device: True)


def _dispatch(original: Any, instead: Any) -> Any:
    def choose(*arguments: Any) -> Any:
        kinds = (torch.Tensor, torch.device)
        found = next(one for one in reversed(arguments) if isinstance(one, kinds))
        device = found if isinstance(found, torch.device) else found.device
        return (original if uses_triton(device) else instead)(*arguments)

    return choose
