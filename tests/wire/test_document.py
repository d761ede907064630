"""A decoder written from docs/wire-format.md alone reads the golden payloads."""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import json
import math
import struct
import zlib
from statistics import NormalDist

import numpy as np
import pytest

import jopeq
from jopeq.random.streams import PrivateStream
from tests.golden import make
from tests.golden.make import KEPT, KEY

# A decoder written from docs/wire-format.md, in plain Python; section numbers are its


def _round32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


class _Bytes:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        self.at += count
        assert self.at <= len(self.data)
        return self.data[self.at - count : self.at]

    def varint(self):
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def unpack(self, form):
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))


def _chacha20(key, lane, start, count):
    """Section 3."""

    def block(counter):
        constants = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
        state = [*constants, *struct.unpack("<8I", key), counter, 0, 0, lane]
        x = list(state)
        rounds = [(i, i + 4, i + 8, i + 12) for i in range(4)]
        rounds += [(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4) for i in range(4)]
        for a, b, c, d in 10 * rounds:
            for i, j, k, n in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                x[i] = (x[i] + x[j]) & 0xFFFFFFFF
                mixed = x[k] ^ x[i]
                x[k] = (mixed << n | mixed >> (32 - n)) & 0xFFFFFFFF
        return struct.pack("<16I", *((u + v) & 0xFFFFFFFF for u, v in zip(x, state, strict=True)))

    first, last = start // 64, -(-(start + count) // 64)
    stream = b"".join(block(counter) for counter in range(first, last))
    return stream[start - 64 * first :][:count]


def _letters(body, base, count):
    """Section 5.1."""
    options = []
    digits = 1
    while (bits := (base**digits - 1).bit_length()) <= 64:
        options.append((bits / digits, -digits))
        digits += 1
    n = -min(options)[1]
    b = (base**n - 1).bit_length()
    number, letters = int.from_bytes(body, "little"), []
    while len(letters) < count:
        here = min(n, count - len(letters))
        width = b if here == n else (base**here - 1).bit_length()
        value, number = number & ((1 << width) - 1), number >> width
        assert value < base**here
        letters += [value // base**i % base for i in range(here)]
    assert number == 0
    return letters


def _variance(law, size, p):
    """Section 7.1: variance and reach."""
    if law == "laplace":
        beta = 2 * math.sqrt(size) / p["epsilon"]
        return 2 * beta**2, 48 * beta

    def of(nu):
        s = 2 / (2 * math.sqrt(nu) * math.sinh(p["epsilon"] / (nu + size)) * (1 - 1e-13))
        s = math.sqrt(p["squared_scale"]) if p.get("squared_scale") else s
        return s**2 * nu / (nu - 2), max(2, s * math.sqrt(nu) * 2 ** (40 / nu))

    if p.get("nu"):
        return of(p["nu"])
    low, high = math.log(2.05), math.log(400)
    while high - low > 1e-9:
        third = (high - low) / 3
        if of(math.exp(low + third)) < of(math.exp(high - third)):
            high -= third
        else:
            low += third
    return of(math.exp(low))


class _Lattice:
    """Section 6.2; basis vectors are the rows."""

    def __init__(self, name):
        self.reduced = None
        if isinstance(name, list):
            self.reduced = b1, b2 = self._reduce(np.array(name).T)
            self.volume = abs(b1[0] * b2[1] - b1[1] * b2[0])
            sides = math.hypot(*b1) * math.hypot(*b2) * math.hypot(*(b1 - b2))
            self.radius = sides / (2 * self.volume)
            self.basis, self.axes, self.nearest = np.eye(2), np.ones(2), self._nearest_reduced
            self.shifts = [(0.5, 0.0), (0.0, 0.5), (0.5, 0.5)]
            return
        size = {"Z": 1, "A2": 2, "D4": 4, "E8": 8}[name]
        self.volume = {"Z": 1, "A2": math.sqrt(3) / 2, "D4": 2, "E8": 1}[name]
        self.radius = {"Z": 0.5, "A2": 1 / math.sqrt(3), "D4": 1, "E8": 1}[name]
        self.axes = np.array([1.0, math.sqrt(3)]) if name == "A2" else np.ones(size)
        self.basis = np.array([[1.0]] if size == 1 else [[1.0, 0.0], [0.5, 0.5]])
        self.shifts = [(0.5,) + (0.0,) * (size - 1)]
        if size > 2:
            unit = np.eye(size)
            self.basis = np.array([unit[0] + unit[1], *(unit[:-1] - unit[1:])])
            self.shifts.append((0.5, 0.5) + (0.0,) * (size - 2))
        if name == "E8":
            self.basis[-1] = 0.5
        self.nearest = {
            "Z": lambda x: np.floor(x + 0.5),
            "A2": lambda x: self._nearer(x, np.floor(x + 0.5), np.floor(x) + 0.5, (1, 3)),
            "D4": self._checkerboard,
            "E8": lambda x: self._nearer(
                x, self._checkerboard(x), self._checkerboard(x - 0.5) + 0.5, (1,) * 8
            ),
        }[name]

    @staticmethod
    def _reduce(columns):
        def dot(u, v):
            return u[0] * v[0] + u[1] * v[1]

        b1, b2 = columns
        while True:
            if dot(b1, b1) > dot(b2, b2):
                b1, b2 = b2, b1
            shorter = b2 - math.floor(dot(b1, b2) / dot(b1, b1) + 0.5) * b1
            if not dot(shorter, shorter) < dot(b2, b2):
                return b1, -b2 if dot(b1, b2) < 0 else b2
            b2 = shorter

    def _nearest_reduced(self, x):
        (a, b), (c, d) = self.reduced
        g11, g12, g22 = a * a + b * b, a * c + b * d, c * c + d * d

        def distance(point):
            p, q = x - point
            return g11 * p * p + 2 * g12 * p * q + g22 * q * q

        return min((np.floor(x) + o for o in ((0, 0), (1, 0), (0, 1), (1, 1))), key=distance)

    @staticmethod
    def _nearer(x, first, second, weights):
        is_first = weights @ (x - first) ** 2 <= weights @ (x - second) ** 2
        return first if is_first else second

    @staticmethod
    def _checkerboard(x):
        r = np.floor(x + 0.5)
        if r.sum() % 2:
            axis = np.abs(x - r).argmax()
            r[axis] += 1 if x[axis] >= r[axis] else -1
        return r

    def points(self, coordinates, delta):
        return self._space(coordinates @ self.basis, delta)

    def _space(self, frame, delta):
        if self.reduced is not None:
            return (frame[..., :1] * self.reduced[0] + frame[..., 1:] * self.reduced[1]) * delta
        return frame * self.axes * delta

    def dither(self, words, delta):
        frame = (np.array(words) + 0.5) / 65536 @ self.basis
        return self._space(frame - self.nearest(frame), delta)

    def codebook(self, letters):
        """Section 6.3: basis coordinates of every letter, with the shift."""
        shifts = self.shifts if letters % 2 == 0 else [(0.0,) * len(self.basis)]
        chosen = [self._lowest(letters, shift) for shift in shifts]
        keys = min(chosen, key=lambda keys: round(sum(length for length, _, _ in keys), 9))
        return np.array([pair for _, pair, _ in keys]) * [[sign] for _, _, sign in keys]

    def _lowest(self, letters, shift):
        unit, limit, keys = np.square(self.points(np.eye(len(shift))[0], 1)).sum(), 1.0, []
        while len(keys) < letters:
            found = self._within(limit * unit, shift)
            lengths = np.square(self.points(found, 1)).sum(axis=1) / unit
            found, lengths = (rows[lengths <= limit * (1 + 1e-9)] for rows in (found, lengths))
            first = found[range(len(found)), (found != 0).argmax(axis=1)]
            signs = np.where(first < 0, -1, 1)
            pairs = map(tuple, (found * signs[:, None]).tolist())
            rounded = (round(length, 9) for length in lengths.tolist())
            keys = sorted(zip(rounded, pairs, signs.tolist(), strict=True))
            limit *= 1.2
        return keys[:letters]

    def _within(self, energy, shift):
        """Basis coordinates of all points of that energy, and some more."""
        if len(shift) == 2:
            reach = math.ceil(2 * math.sqrt(energy) / math.sqrt(self.volume)) + 3
            return np.array([*itertools.product(range(-reach, reach + 1), repeat=2)]) + shift
        # D4 and E8 and their halves lie in half the integers
        limit = math.floor(4 * energy + 1e-9)
        reach, rows = math.isqrt(limit), [((), 0)]
        for _ in shift:
            rows = [
                ((*row, v), used + v * v)
                for row, used in rows
                for v in range(-reach, reach + 1)
                if used + v * v <= limit
            ]
        coordinates = np.array([row for row, _ in rows]) / 2 @ np.linalg.inv(self.basis)
        offset = coordinates - shift
        is_point = (np.abs(offset - np.rint(offset)) < 1e-9).all(axis=1)
        return np.rint(2 * coordinates[is_point]) / 2


def reference_decode(payload, secret=None):
    """The entries of every tensor of a payload, from the document alone."""
    assert zlib.crc32(payload[:-4]) == struct.unpack("<I", payload[-4:])[0]
    data = _Bytes(payload[:-4])
    assert data.take(5) == b"JoPQ\1"
    (flags,) = data.take(1)
    name, p = json.loads(data.take(data.varint()))
    shapes = {}
    for _ in range(data.varint()):
        tensor = data.take(data.varint()).decode()
        shapes[tensor] = [data.varint() for _ in range(data.varint())]
    seed = b""
    if flags & 2:
        seed = data.take(16 if flags & 1 else 32)
    if flags & 1:
        assert secret is not None
        seed = hmac.new(secret, b"jopeq dither\0" + seed, "sha256").digest()
        tag_key = hmac.new(secret, b"jopeq tag\0", "sha256").digest()
        tag = hmac.new(tag_key, payload[:-20], "sha256").digest()[:16]
        assert payload[-20:-4] == tag
        data.data = payload[:-20]
    scales = []
    if flags & 4:
        width = 2 if flags & 8 else 1
        scales = [(*data.unpack(f"{width}f"), 0.0)[:2] for _ in range(data.varint())]
    sizes = {tensor: math.prod(shape) for tensor, shape in shapes.items()}
    tensors = _tensors(name, p, data, sizes, scales, seed)
    assert data.at == len(data.data)
    assert not scales
    return [tensors[tensor] for tensor in shapes]


def _scales_of(name, p, tensors, scales):
    """Section 9: (unit, mean) of each tensor; takes what it needs from ``scales``."""
    statistics = [
        tensor.endswith(("running_mean", "running_var", "moving_mean", "moving_variance"))
        for tensor in tensors
    ]
    per = p.get("per", "update")
    if per == "layers":
        return [scales.pop(0) for _ in tensors]
    fixed = (_round32(p["clip"]), 0.0) if "clip" in p else None
    if per == "update" and fixed is None:
        fixed = scales.pop(0)
    return [(1.0, 0.0) if is_statistic else fixed or scales.pop(0) for is_statistic in statistics]


def _tensors(name, p, data, named, scales, seed):
    """Sections 5 to 9."""
    units = [] if name == "none" else _scales_of(name, p, named, scales)
    sizes = list(named.values())
    count = sum(sizes)
    lattice = _Lattice(p.get("lattice", "Z"))
    joint = name == "t"
    size = len(lattice.basis) if "lattice" in p else p.get("size", 2 if joint else 1)
    samples = -(-count // size)
    if name == "none":
        flat = list(data.unpack(f"{count}f"))
    elif joint or name == "laplace":
        variance, reach = _variance(name, size, p)
        fine = math.frexp(min(math.sqrt(variance), 1))[1] - 16
        grid = 2.0 ** max(fine, math.frexp((reach + 1) / (2**31 - 1))[1])
        flat = [word * grid for word in data.unpack(f"{samples * size}i")]
    elif name == "response":
        flat = _response(p, data, samples, seed)
    else:
        flat = _dithered(name, p, data, lattice, samples, seed)
    flat = flat[:count]

    tensors, at = {}, 0
    for number, (tensor, entries) in enumerate(named.items()):
        values = flat[at : at + entries]
        if units:
            unit, mean = units[number]
            values = [_round32(v * unit + mean) for v in values]
        tensors[tensor] = values
        at += entries
    return tensors


def _response(p, data, samples, seed):
    """Section 7.2."""
    words = struct.unpack(f"<{samples}h", _chacha20(seed, 0, 0, 2 * samples))
    dither = [(w + 0.5) / 65536 for w in words]
    levels, values = _channel(p, math.floor(2 ** p["rate"] * (1 + 1e-12)))
    letters = _letters(data.take(len(data.data) - data.at), len(values), samples)
    return [values[i] - 2 / (levels - 1) * u for i, u in zip(letters, dither, strict=True)]


def _channel(p, most):
    """Levels and decoder values of the channel with that fingerprint."""

    def fingerprint(counts, values):
        digest = hashlib.sha256(b"jopeq channel 1" + struct.pack("<HH", len(counts), len(values)))
        digest.update(b"\1" + np.array(counts, "<u8").tobytes() + np.array(values, "<f8").tobytes())
        return digest.hexdigest()[:16]

    for letters in range(2, most + 1):
        other = math.ceil(2**32 / (math.exp(p["epsilon"]) + letters - 1))
        keep = 2**32 - (letters - 1) * other
        counts = [[keep if i == j else other for i in range(letters)] for j in range(letters)]
        gain = 2**32 / (keep - other)
        values = [gain * ((2 * i - letters + 1) / (letters - 1)) for i in range(letters)]
        if fingerprint(counts, values) == p["fingerprint"]:
            return letters, values
    raise AssertionError(f"no randomized response has the fingerprint {p['fingerprint']}")


def _dithered(name, p, data, lattice, samples, seed):
    size = len(lattice.basis)
    letters, delta = _step(name, p, lattice)
    indices = _letters(data.take(len(data.data) - data.at), letters, samples)
    if size == 1:
        points = (np.array(indices)[:, None] - (letters - 1) / 2) * delta
    else:
        points = lattice.points(lattice.codebook(letters), delta)[indices]
    if name != "dq":
        stream = _chacha20(seed, 0, 0, 2 * samples * size)
        words = np.frombuffer(stream, "<u2").reshape(samples, size)
        points = [point - lattice.dither(w, delta) for point, w in zip(points, words, strict=True)]
    return np.reshape(points, -1).tolist()


def _step(name, p, lattice):
    """Section 6.1."""
    size = len(lattice.basis)
    letters = math.floor(2 ** (p["rate"] * size) * (1 + 1e-12))
    if p.get("levels") == "odd" and letters % 2 == 0:
        letters -= 1
    ball = 2.0 if size == 1 else 1.0
    for even in range(2, size + 1, 2):
        ball *= 2 * math.pi / even
    gamma = p.get("gamma")
    if gamma is None and name in ("sdq", "dq"):
        return letters, 1 / ((letters * lattice.volume / ball) ** (1 / size) - lattice.radius)
    if gamma is None:
        law = name.removesuffix("+sdq")
        if name == "jopeq":
            law = p.get("law") or ("laplace" if size == 1 else "t")
        if law == "laplace" and size == 1:
            gamma = 2 * p["rate"] + 1 / p["epsilon"]
        else:
            gamma = 1.5 * (1 + _variance(law, size, p)[0]) * math.sqrt(max(1, size / 2))
    return letters, (ball * gamma**size / (letters * lattice.volume)) ** (1 / size)


def _unrotate(flat, seed, lane=1):
    """Section 8."""
    signs = _chacha20(seed, lane, 0, -(-len(flat) // 8))
    result: list[float] = []
    while len(result) < len(flat):
        start = len(result)
        size = min(65536, 1 << ((len(flat) - start).bit_length() - 1))
        x, width = np.array(flat[start : start + size]), 1
        while width < size:
            left, right = x.reshape(-1, 2, width).swapaxes(0, 1)
            x, width = np.stack((left + right, left - right), axis=1).reshape(-1), 2 * width
        turned = (x / math.sqrt(size)).tolist()
        result += [-v if signs[j // 8] >> j % 8 & 1 else v for j, v in enumerate(turned, start)]
    return result


def _codeword(plan, report, seed, client):
    """Section 7.3, steps 1 to 6 but for the clip; the plan is the library's."""
    n, k, m, lists = plan.padded, plan.block, plan.pairs, plan.lists
    width = m.bit_length()
    index = int.from_bytes(report, "little")
    row = [0] * n
    for number in range(lists):
        group = index >> width * (lists - 1 - number) & (2 * m - 1)
        vector = group // 2 + m * number
        block = struct.unpack("<I", _chacha20(seed, client, 4 * vector, 4))[0] % (n // k)
        start = 64 * -(-4 * lists * m // 64) + 2 * k * vector
        for i, word in enumerate(struct.unpack(f"<{k}H", _chacha20(seed, client, start, 2 * k))):
            chance = 0.5 + (word % 2**15 + 0.5) / 2**16
            draw = math.floor(4096 * NormalDist().inv_cdf(chance) + 0.5)
            row[block * k + i] += draw * (-1 if word >= 2**15 else 1) * (-1 if group % 2 else 1)
    for lane in (2**32 - 1, 2**32 - 2):
        row = _unrotate(row, seed, lane)
    gain = plan.unit / 2**64 * plan.members**lists * math.sqrt(lists) * plan.mean_score
    scale = math.sqrt(n / k / lists) / (gain * 4095.956823285345)
    return [value * scale for value in row[: plan.dimension]]


# Reports of a fixed update, noise and key: one list of whole vectors, of blocks, two lists
REPORTS = [
    ({"epsilon": 4.0, "clip": 1.0}, 40, {0: "0e02", 5: "0e02"}),
    ({"epsilon": 8.0, "clip": 0.5, "draws": 1024}, 60, {0: "e500", 5: "4b03"}),
    ({"epsilon": 16.0, "clip": 2.0, "draws": 4096}, 50, {0: "9b2a", 5: "bd3d"}),
]


@pytest.mark.parametrize(("parameters", "dimension", "kept"), REPORTS)
def test_reports_are_the_kept_ones_and_the_document_suffices_to_decode_them(
    parameters, dimension, kept
):
    scheme = jopeq.Sphere(**parameters)
    terms = scheme.round(dimension=dimension, seed=make.SEED)
    for client, report in kept.items():
        noise = PrivateStream.reproducible(make.NOISE)
        assert terms.report(make.update_of([dimension]), client=client, noise=noise).hex() == report
        total = terms.aggregator()
        assert total.add(bytes.fromhex(report), client=client)
        expected = _codeword(terms.plan, bytes.fromhex(report), make.SEED, client)
        np.testing.assert_allclose(total.mean(), scheme.clip * np.array(expected), rtol=1e-9)


SHORT = [name for name, entry in KEPT.items() if "base64" in entry["payload"]]


@pytest.mark.parametrize("name", SHORT)
def test_the_document_suffices_to_decode(name):
    entry = KEPT[name]
    payload = base64.b64decode(entry["payload"]["base64"])
    key = KEY if entry["case"][3] else None
    values = [v for tensor in reference_decode(payload, key) for v in tensor]
    expected = np.frombuffer(base64.b64decode(entry["decoded"]["base64"]), "<f4")
    if any(part in name for part in ("custom", "calibrated", "D4", "E8")):
        # Δ goes through a fractional power: its last bit is the platform's
        np.testing.assert_allclose(values, expected, rtol=3e-7, atol=1e-12)
    else:
        np.testing.assert_array_equal(np.float32(values), expected)
