# mypy: ignore-errors
# ruff: noqa: N803 (Triton's spelling of compile-time numbers; its tuples only add)
"""The ChaCha20 block function (RFC 8439) in registers: one lane of a Triton tensor, one block."""

from __future__ import annotations

from jopeq.kernels.gpu.jit import constant, jit, tl

_S0, _S1, _S2, _S3 = map(constant, (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574))


@jit
def _turned(x, BITS: tl.constexpr):
    return (x << BITS) | (x >> (32 - BITS))


@jit
def _quarter(a, b, c, d):
    a += b
    d = _turned(d ^ a, 16)
    c += d
    b = _turned(b ^ c, 12)
    a += b
    d = _turned(d ^ a, 8)
    c += d
    b = _turned(b ^ c, 7)
    return a, b, c, d


@jit
def block(key, counter, LANE: tl.constexpr):
    """The sixteen 32-bit words of each block; ``key`` is eight uint32, ``counter`` uint32."""
    return block_of(key, counter, LANE)


@jit
def block_of(key, counter, lane):
    """The same with a lane for each block, or for some of them: uint32 too."""
    zero = counter ^ counter
    lane = zero + lane
    s0, s1, s2, s3 = zero + _S0, zero + _S1, zero + _S2, zero + _S3
    x0, x1, x2, x3 = s0, s1, s2, s3
    x4, x5, x6, x7 = zero + key[0], zero + key[1], zero + key[2], zero + key[3]
    x8, x9, x10, x11 = zero + key[4], zero + key[5], zero + key[6], zero + key[7]
    x12, x13, x14, x15 = counter, zero, zero, lane
    for _ in range(10):
        x0, x4, x8, x12 = _quarter(x0, x4, x8, x12)
        x1, x5, x9, x13 = _quarter(x1, x5, x9, x13)
        x2, x6, x10, x14 = _quarter(x2, x6, x10, x14)
        x3, x7, x11, x15 = _quarter(x3, x7, x11, x15)
        x0, x5, x10, x15 = _quarter(x0, x5, x10, x15)
        x1, x6, x11, x12 = _quarter(x1, x6, x11, x12)
        x2, x7, x8, x13 = _quarter(x2, x7, x8, x13)
        x3, x4, x9, x14 = _quarter(x3, x4, x9, x14)
    return (
        x0 + s0, x1 + s1, x2 + s2, x3 + s3, x4 + key[0], x5 + key[1], x6 + key[2], x7 + key[3], x8 +
        key[4], x9 + key[5], x10 + key[6], x11 + key[7], x12 + counter, x13, x14, x15 + lane,
    )  # fmt: skip
