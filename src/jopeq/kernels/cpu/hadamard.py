"""Stages of the Hadamard transform, of width 1, 2, 4, …, as ``wire.samples`` adds and subtracts."""

from __future__ import annotations

import numpy as np

from jopeq.kernels.cpu.native import part

NEAR = 1 << 12  # entries that fit the first-level cache


@part
def first_stages(values, work):
    """The stages of width 1 to 8."""
    for start in range(0, len(values), 16):
        here = values[start : start + 16]
        for g in range(0, 16, 4):
            a, b, c, d = here[g], here[g + 1], here[g + 2], here[g + 3]
            x, y, z, w = a + b, a - b, c + d, c - d
            work[g], work[g + 1], work[g + 2], work[g + 3] = x + z, y + w, x - z, y - w
        for j in range(4):
            a, b, c, d = work[j], work[4 + j], work[8 + j], work[12 + j]
            x, y, z, w = a + b, a - b, c + d, c - d
            here[j], here[4 + j], here[8 + j], here[12 + j] = x + z, y + w, x - z, y - w


@part
def pairs(values, width, low, high):
    """The stage of ``width``, over columns low…high."""
    for start in range(0, len(values), 2 * width):
        a, b = values[start : start + width], values[start + width : start + 2 * width]
        for j in range(low, high):
            a[j], b[j] = a[j] + b[j], a[j] - b[j]


@part
def eights(values, width, low, high):
    """Three stages, from ``width`` on: fewer ways through memory."""
    for start in range(0, len(values), 8 * width):
        here = values[start : start + 8 * width]
        a, b = here[:width], here[width : 2 * width]
        c, d = here[2 * width : 3 * width], here[3 * width : 4 * width]
        e, f = here[4 * width : 5 * width], here[5 * width : 6 * width]
        g, h = here[6 * width : 7 * width], here[7 * width :]
        for j in range(low, high):
            p, q, r, s = a[j] + b[j], a[j] - b[j], c[j] + d[j], c[j] - d[j]
            t, u, v, w = e[j] + f[j], e[j] - f[j], g[j] + h[j], g[j] - h[j]
            p, q, r, s = p + r, q + s, p - r, q - s
            t, u, v, w = t + v, u + w, t - v, u - w
            a[j], b[j], c[j], d[j] = p + t, q + u, r + v, s + w
            e[j], f[j], g[j], h[j] = p - t, q - u, r - v, s - w


@part
def stages(values, width):
    """The stages from ``width`` on."""
    while 8 * width <= len(values):
        eights(values, width, 0, width)
        width *= 8
    while width < len(values):
        pairs(values, width, 0, width)
        width *= 2


@part
def transform(values):
    """All stages of at least 16 entries, near ones first piece by piece; divided by the root."""
    work = np.empty(16)
    near = min(len(values), NEAR)
    for start in range(0, len(values), near):
        here = values[start : start + near]
        first_stages(here, work)
        stages(here, 16)
    stages(values, near)
    root = np.sqrt(np.float64(len(values)))
    for i in range(len(values)):
        values[i] /= root
