"""The Triton kernels' arithmetic in plain torch: a stand-in where tests have no GPU.

Five to thirty times slower than coding on the host, so the library has no use for it.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from jopeq.kernels.gpu import codec
from jopeq.kernels.gpu import plan as plans
from jopeq.kernels.gpu.chacha import key_words
from jopeq.kernels.gpu.plan import ROW, Plan, uses_triton
from jopeq.random import portable
from jopeq.wire.packing import Packing
from jopeq.wire.scaling import Scale

Tensor = torch.Tensor

_SEGMENT = 1 << 20  # entries that are worked on together
_EXTRA_LANE = -(1 << 31)  # as a signed word
_LARGEST = torch.finfo(torch.float32).max
_LOW = 0xFFFFFFFF
_WORD_LIMIT = 2.0**31 - 1.0
_MAX_COORDINATE = 2.0**50


def dither_words(key: list[int], first_row: int, rows: int, device: torch.device) -> Tensor:
    """The 16-bit words of these rows, signed, entry by entry."""
    blocks = torch.arange(first_row, first_row + rows, device=device)
    return key_words(key, blocks, 0).reshape(-1).view(torch.int16)


def _horner(terms: tuple[float, ...], x: Tensor) -> Tensor:
    total = torch.full_like(x, terms[0])
    for term in terms[1:]:
        total = total * x + term
    return total


def _exponential(words: Tensor, extra: Tensor) -> Tensor:
    """−ln u of fine uniforms; ``extra`` are the words where the rare ones go on."""
    bits = (words >> 51) & 0xFFF
    zeros = 12 - torch.frexp(bits.double())[1]
    zeros = torch.where(bits == 0, torch.clamp(76 - _bit_length(extra), max=75), zeros)
    mantissa = (((words & ((1 << 51) - 1)) << 1) | (0x3FE << 52) | 1).view(torch.float64)
    is_small = mantissa < math.sqrt(0.5)
    m = torch.where(is_small, mantissa + mantissa, mantissa)
    power = (-zeros - is_small.to(zeros.dtype)).double()
    s = (m - 1.0) / (m + 1.0)
    q = s * s
    tail = s * q * _horner(portable.ATANH_TERMS, q) * 2.0 + power * portable.LN2_LOW
    tail = tail + s * 2.0
    return -(power * portable.LN2_HIGH + tail)


def _bit_length(words: Tensor) -> Tensor:
    high = (words >> 32) & _LOW
    low = torch.frexp((words & _LOW).double())[1]
    return torch.where(high == 0, low, 32 + torch.frexp(high.double())[1])


def _expm1(x: Tensor) -> Tensor:
    power = torch.floor(x * (1.0 / math.log(2.0)) + 0.5)
    r = (x - power * portable.LN2_HIGH) - power * portable.LN2_LOW
    factor = ((power.long() + 1023) << 52).view(torch.float64)
    return factor * (r * _horner(portable.EXPM1_TERMS, r)) + (factor - 1.0)


def _circle(words: Tensor) -> Tensor:
    """(cos, sin) of uniform angles, in rows."""
    place = ((words >> 10) & ((1 << 52) - 1)).double()
    angle = ((place + 0.5) * 2.0**-52 - 0.5) * (math.pi / 2)
    q = angle * angle
    sine = angle * _horner(portable.SIN_TERMS, q)
    cosine = _horner(portable.COS_TERMS, q)
    is_odd = (words & (1 << 62)) != 0
    point = torch.stack(
        (torch.where(is_odd, -sine, cosine), torch.where(is_odd, cosine, sine)), dim=1
    )
    return torch.where((words < 0)[:, None], -point, point)


def unit_dither(words: Tensor) -> Tensor:
    """(signed word + ½)/65536."""
    return (words.double() + 0.5) * 2.0**-16


def hexagonal_dither(words: Tensor, step: float) -> Tensor:
    """Uniform points of the cell of A2 from pairs of words."""
    unit = ((words.long() & 0xFFFF).double() + 0.5) * 2.0**-16
    y = unit[1::2] * 0.5
    frame = torch.stack((unit[0::2] + y, y), dim=1)
    rest = frame - _nearest_hexagonal(frame)
    return torch.stack((rest[:, 0] * step, rest[:, 1] * math.sqrt(3.0) * step), dim=1)


def _nearest_hexagonal(x: Tensor) -> Tensor:
    first, second = torch.floor(x + 0.5), torch.floor(x) + 0.5

    def distance(point: Tensor) -> Tensor:
        square = (x - point) * (x - point)
        return square[:, 0] + square[:, 1] * 3.0

    return torch.where((distance(first) <= distance(second))[:, None], first, second)


def letters_of(
    plan: Plan,
    tensors: list[Tensor],
    scales: list[Scale],
    shared: list[int],
    private: list[int],
    counts: Tensor,
) -> Tensor:
    """The letters of all tensors, packed as the kernel packs them."""
    packed = []
    for start, entries, scale in codec.segments(tensors, scales):
        wide = entries.double()
        counts[2] += (~(wide.abs() <= _LARGEST)).sum()
        x = (wide - scale.mean) * scale.inverse
        rows = -(-x.numel() // ROW)
        if x.numel() % plan.dimension:
            x = torch.cat((x, x.new_zeros(1)))
        letters = _letters(plan, x, start // ROW, rows, shared, private, counts)
        packed.append(pack_letters(letters.reshape(-1), plan.width))
    return torch.cat(packed).view(torch.int32)


def _letters(
    plan: Plan,
    flat: Tensor,
    first_row: int,
    rows: int,
    shared: list[int],
    private: list[int],
    counts: Tensor,
) -> Tensor:
    numbers, count, dimension = plan.numbers, flat.numel(), plan.dimension
    x = flat.reshape(-1, dimension)
    if plan.is_clipped:
        x, clipped = _into_ball(x)
        counts[0] += clipped
    if plan.step == "grid":
        x = _on_grid(x, numbers["step"])
    if plan.noise != "none":
        per_row = ROW // plan.group
        blocks = torch.arange(first_row * per_row, (first_row + rows) * per_row, device=x.device)
        drawn = key_words(private, blocks, 0).reshape(-1)
    if plan.noise in ("laplace", "t"):
        words = drawn.view(torch.int64)
        extra = key_words(private, blocks, _EXTRA_LANE).reshape(-1).view(torch.int64)
        x = x + _noise(plan, words, extra)[:count].reshape(-1, dimension)
        x = x.clamp(-numbers["noise_limit"], numbers["noise_limit"])
    if plan.step == "grid":
        return torch.round(x * numbers["inverse_step"]).clamp(-_WORD_LIMIT, _WORD_LIMIT)
    words16 = dither_words(shared, first_row, rows, x.device)
    if plan.step == "cells":
        dithered = x + hexagonal_dither(words16, numbers["step"])[: len(x)]
        return _in_cells(plan, dithered, counts)
    unit = unit_dither(words16)[:count]
    if plan.step == "line":
        place = (x[:, 0] + unit * numbers["step"]) * numbers["inverse_step"] + numbers["centre"]
        cells = torch.floor(place)
        inside = cells.clamp(0.0, numbers["letters"] - 1.0)
        counts[1] += (inside != cells).sum()
        return inside
    level = torch.floor(x[:, 0] * numbers["step"] + (unit + numbers["centre"])).long()
    if plan.step == "chances":
        thresholds = (plan.table.long() & _LOW).reshape(-1, plan.columns)
        random = drawn[:count].long() & _LOW
        letters = torch.zeros_like(level)
        for column in thresholds.unbind(1):
            letters += column[level] < random
        return letters
    size, lowest, first, last = plan.whole
    flip = -(1 << 63)  # signed order is unsigned order with the top bit flipped
    random = drawn.view(torch.int64)[:count] ^ flip
    moved = level + torch.searchsorted(plan.table[:size] ^ flip, random, right=True) + lowest
    outputs = moved.clamp(first, last)
    counts[1] += (outputs != moved).sum()
    return outputs


def _into_ball(x: Tensor) -> tuple[Tensor, Tensor]:
    if x.shape[1] == 1:
        is_inside = x.abs() <= 1.0  # NaN, which is refused later, must not reach a table
        return torch.where(is_inside, x, torch.where(x < 0.0, -1.0, 1.0)), (~is_inside).sum()
    norms = torch.sqrt(x[:, 0] * x[:, 0] + x[:, 1] * x[:, 1])
    outside = norms > 1.0
    factors = torch.where(outside, (1.0 - 1e-12) / torch.where(outside, norms, 1.0), 1.0)
    return x * factors[:, None], outside.sum()


def _on_grid(x: Tensor, grid: float) -> Tensor:
    rounded = torch.round(x / grid) * grid
    if x.shape[1] == 1:
        return rounded
    outside = rounded[:, 0] * rounded[:, 0] + rounded[:, 1] * rounded[:, 1] > 1.0
    return torch.where(outside[:, None], torch.trunc(x / grid) * grid, rounded)


def _noise(plan: Plan, words: Tensor, extra: Tensor) -> Tensor:
    numbers = plan.numbers
    if plan.noise == "laplace":
        draws = _exponential(words, extra)
        return torch.where(words < 0, -draws, draws) * numbers["noise_scale"]
    draws = _exponential(words[0::2], extra[0::2])
    radius = torch.sqrt(_expm1(draws * numbers["two_over_nu"]) * numbers["nu"])
    points = _circle(words[1::2])[:, : plan.dimension]
    return (points * (radius * numbers["noise_scale"])[:, None]).reshape(-1)


def _in_cells(plan: Plan, x: Tensor, counts: Tensor) -> Tensor:
    numbers = plan.numbers
    shift_x, shift_y, inverse_y, low_x, low_y, extent_x, extent_y = (
        numbers[f"f{k}"] for k in range(7)
    )
    frame = torch.stack(
        ((x[:, 0] - shift_x) * numbers["inverse_step"], (x[:, 1] - shift_y) * inverse_y), dim=1
    )
    counts[3] += (~(frame.abs() < _MAX_COORDINATE)).any(dim=1).sum()
    near = _nearest_hexagonal(frame)
    a, b = (near[:, 0] - near[:, 1]) - low_x, near[:, 1] * 2.0 - low_y
    is_boxed = (a >= 0.0) & (b >= 0.0) & (a < extent_x) & (b < extent_y)
    key = torch.where(is_boxed, a + b * extent_x, 0.0).long()
    letters = torch.where(is_boxed, plan.table[key].long(), -1)
    is_outside = letters < 0
    counts[1] += is_outside.sum()
    lost = x[is_outside]
    best = torch.zeros(len(lost), dtype=torch.int64, device=x.device)
    least = torch.full((len(lost),), math.inf, dtype=torch.float64, device=x.device)
    for letter, (point_x, point_y) in enumerate(plan.points.reshape(-1, 2).tolist()):
        dx, dy = lost[:, 0] - point_x, lost[:, 1] - point_y
        distance = dx * dx + dy * dy
        nearer = distance < least
        best = torch.where(nearer, letter, best)
        least = torch.where(nearer, distance, least)
    letters[is_outside] = best
    return letters


def pack_letters(letters: Tensor, width: int) -> Tensor:
    """Letters as bytes, least significant bit first, filled up to whole rows."""
    if width in (8, 16, 32):
        kind = {8: torch.uint8, 16: torch.int16, 32: torch.int32}[width]
        whole = letters.long().to(kind)
        return torch.nn.functional.pad(whole, (0, -len(whole) % ROW)).view(torch.uint8)
    whole = torch.nn.functional.pad(letters.long(), (0, -len(letters) % ROW))
    places = torch.arange(width, device=letters.device)
    bits = ((whole[:, None] >> places) & 1).reshape(-1, 8)
    weights = 1 << torch.arange(8, device=letters.device)
    return (bits * weights).sum(dim=1).to(torch.uint8)


def unpack_letters(packed: Tensor, count: int, width: int) -> Tensor:
    """The first ``count`` letters in these bytes."""
    if width in (8, 16, 32):
        kind = {8: torch.uint8, 16: torch.int16, 32: torch.int32}[width]
        letters = packed.view(kind)[:count].long()
        return letters & 0xFFFF if width == 16 else letters
    bits = (packed.long()[:, None] >> torch.arange(8, device=packed.device)) & 1
    rows = bits.reshape(-1)[: count * width].reshape(count, width)
    return (rows << torch.arange(width, device=packed.device)).sum(dim=1)


def scaled_entries(plan: Plan, packed: Tensor, start: int, stop: int, key: list[int]) -> Tensor:
    """Entries start…stop in scaled units, start at the beginning of a row."""
    numbers = plan.numbers
    row, rows = start // ROW, -(-(stop - start) // ROW)
    low, high = row * plan.row_bits // 8, (row + rows) * plan.row_bits // 8
    there = packed.view(torch.uint8)[low:high]
    letters = unpack_letters(there, plan.letters_in(rows * ROW), plan.width)
    if plan.step == "grid":
        return (letters.double() * numbers["step"])[: stop - start]
    words = dither_words(key, row, rows, packed.device)
    if plan.step == "cells":
        points = plan.points.reshape(-1, 2)[letters]
        if plan.is_subtractive:
            points = points - hexagonal_dither(words, numbers["step"])
        return points.reshape(-1)[: stop - start]
    unit = unit_dither(words)
    if plan.step == "line":
        x = (letters.double() - numbers["f0"]) * numbers["step"]
        if plan.is_subtractive:
            x = x - unit * numbers["step"]
    elif plan.step == "chances":
        x = plan.points[letters] - unit * numbers["f0"]
    else:
        x = ((letters.double() - numbers["f1"]) - unit) * numbers["f0"]
    return x[: stop - start]


def decode(
    plan: Plan,
    out: Tensor,
    packed: Tensor,
    spans: codec.Spans,
    key: list[int],
    weight: float | None,
) -> None:
    """A segment at a time."""
    for start, stop, scale in spans:
        for first in range(start // ROW * ROW, stop, _SEGMENT):
            last, skip = min(first + _SEGMENT, stop), max(start - first, 0)
            scaled = scaled_entries(plan, packed, first, last, key)[skip:]
            entries = (scaled * scale.unit + scale.mean).float()
            there = out[first + skip : last]
            if weight is None:
                there.copy_(entries)
            else:
                there.copy_(there.double() + entries.double() * weight)


def joined_letters(letters: Tensor, count: int, packing: Packing) -> Tensor:
    """Numbers made of letters, without gaps; 64 of them fill ``bits`` words."""
    digits, bits = packing.digits, packing.bits
    padded = -(-count // (64 * digits)) * 64
    filled = torch.zeros(padded * digits, dtype=torch.int64, device=letters.device)
    filled[:count] = letters[:count].long() & 0xFFFF
    numbers = torch.zeros(padded, dtype=torch.int64, device=letters.device)
    for column in reversed(filled.reshape(padded, digits).unbind(1)):
        numbers = numbers * packing.letters + column
    rows = numbers.reshape(-1, 64)
    words = torch.zeros((len(rows), bits), dtype=torch.int64, device=letters.device)
    for slot in range(64):
        word, shift = divmod(slot * bits, 64)
        words[:, word] |= rows[:, slot] << shift
        if shift + bits > 64:
            mask = (1 << (bits + shift - 64)) - 1
            words[:, word + 1] |= (rows[:, slot] >> (64 - shift)) & mask
    return words.reshape(-1)


def digits_of(words: Tensor, letters: Tensor, count: int, numbers: int, packing: Packing) -> bool:
    """Fill in the letters of so many numbers; whether any is outside the codebook."""
    bits, base = packing.bits, packing.letters
    place = torch.arange(numbers, device=words.device) * bits
    word, shift = place // 64, place % 64
    low = _shifted_right(words[word], shift)
    high = torch.where(shift == 0, 0, words[word + 1] << ((64 - shift) % 64))
    number = low | high
    if bits < 64:
        number = number & ((1 << bits) - 1)
    columns = []
    for _ in range(packing.digits):
        quotient = _divided(number, base)
        columns.append(number - quotient * base)
        number = quotient
    found = torch.stack(columns, dim=1).reshape(-1)
    letters[:count] = found[:count].to(letters.dtype)
    return bool(number.any()) or bool(found[count:].any())


def _shifted_right(words: Tensor, shift: Tensor) -> Tensor:
    """Logical, not arithmetic."""
    halved = (words >> 1) & ((1 << 63) - 1)
    return torch.where(shift == 0, words, halved >> (shift - 1).clamp(min=0))


def _divided(number: Tensor, base: int) -> Tensor:
    """Unsigned division of 64-bit words by a small base."""
    half = ((number >> 1) & ((1 << 63) - 1)) // base * 2
    rest = number - half * base
    is_over = (rest < 0) | (rest >= base)  # below 2·base, unless the top bit is set
    return torch.where(is_over, half + 1, half)


def stand_in(monkeypatch: Any) -> None:
    """Let plain torch do what Triton does, on devices where Triton does not run."""
    for name, instead in (
        ("encode_with_triton", letters_of),
        ("decode_with_triton", decode),
        ("join_with_triton", joined_letters),
        ("split_with_triton", digits_of),
    ):
        monkeypatch.setattr(codec, name, _dispatch(getattr(codec, name), instead))
    monkeypatch.setattr(plans, "uses_triton", lambda device: True)


def _dispatch(original: Any, instead: Any) -> Any:
    def choose(*arguments: Any) -> Any:
        tensor = next(one for one in reversed(arguments) if isinstance(one, Tensor))
        return (original if uses_triton(tensor.device) else instead)(*arguments)

    return choose
