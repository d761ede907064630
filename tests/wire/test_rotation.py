"""Entries to samples and back: scales, rotation and chunks."""

import numpy as np
import pytest
from scipy import stats

import jopeq.wire.coders
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.registry import scheme
from jopeq.wire.entries import Entries
from jopeq.wire.rotation import MAX_BLOCK, hadamard, rotate_block, signs, unrotate_block
from jopeq.wire.scaling import Scale, read_scaled, unscale

SEED = bytes(range(32))
SHARED = SharedStream(SEED)
SHAPES = ((3, 5), (0,), (), (41,), (2, 2, 2))


def tensors(shapes=SHAPES):
    generator = np.random.default_rng(7)
    arrays = tuple(generator.normal(size=shape).astype(np.float32) for shape in shapes)
    return Entries(tuple(f"t{i}" for i in range(len(shapes))), arrays)


def flat(entries):
    return np.concatenate([tensor.reshape(-1) for tensor in entries.tensors]).astype(np.float64)


# The rotation itself


@pytest.mark.parametrize("size", [2, 64, MAX_BLOCK, 4 * MAX_BLOCK])
def test_every_sum_is_rounded_as_the_document_says(size):
    """Bit for bit: butterflies of widths 1, 2, 4, …, then the division."""
    values = np.random.default_rng(size).normal(size=size)
    expected, width = values.copy(), 1
    while width < size:
        left, right = expected.reshape(-1, 2, width).swapaxes(0, 1).copy()
        expected = np.stack((left + right, left - right), axis=1).reshape(-1)
        width *= 2
    before = values.copy()
    assert np.array_equal(hadamard(values), expected / np.sqrt(size))
    assert np.array_equal(values, before)
    with pytest.raises(ValueError, match="power of two"):
        hadamard(np.zeros(3 * size))


def test_signs_are_the_documented_bits_from_any_place():
    everything = signs(SHARED, 0, 500)
    octets = SHARED.read(lane=1, start=0, count=63)
    expected = [1.0 - 2.0 * (int(octets[i // 8]) >> (i % 8) & 1) for i in range(500)]
    assert everything.tolist() == expected
    for start in (0, 1, 7, 8, 9, 63, 64, 130):
        for count in (0, 1, 7, 8, 9, 200):
            assert np.array_equal(signs(SHARED, start, count), everything[start:][:count])


@pytest.mark.parametrize(("start", "size"), [(0, 1), (0, 64), (64, 32), (96, 1), (8, 1 << 12)])
def test_blocks_turn_and_turn_back(start, size):
    values = np.random.default_rng(size).normal(size=size)
    turned = rotate_block(values, start, SHARED)
    expected = hadamard(values * signs(SHARED, start, len(values)))
    np.testing.assert_allclose(turned, expected, atol=1e-12)
    np.testing.assert_allclose(unrotate_block(turned, start, SHARED), values, atol=1e-13)


# Samples of tensors

SCALES = {
    "none": [],
    "one": [Scale(3.0, 0.25)],
    "each": [Scale(2.0**i, 0.5 * i) for i in range(len(SHAPES))],
}


@pytest.mark.parametrize("kind", SCALES)
def test_entries_are_read_and_written_alike_whatever_the_chunks(kind):
    entries, scales = tensors(), SCALES[kind]
    expected = flat(entries)
    if scales:
        units = scales if len(scales) > 1 else scales * len(SHAPES)
        pieces = zip(units, entries.tensors, strict=True)
        wide = [scale.apply(tensor.astype(np.float64).reshape(-1)) for scale, tensor in pieces]
        expected = np.concatenate(wide)
    ends = np.cumsum(entries.sizes).tolist()
    for chunk in (1, 2, 7, 1000):
        starts = range(0, entries.count, chunk)
        found = np.concatenate(
            [read_scaled(entries, scales, at, min(at + chunk, entries.count)) for at in starts]
        )
        assert np.array_equal(found, expected)
        for start in starts:
            unscale(found[start : start + chunk], start, ends, scales)
        np.testing.assert_allclose(found, flat(entries), atol=1e-6)


def test_a_spiky_update_looks_gaussian_once_rotated(assert_follows):
    generator, update = np.random.default_rng(3), np.zeros(1 << 14)
    places = generator.choice(len(update), size=200, replace=False)
    update[places] = generator.standard_t(3, size=200)
    update /= np.sqrt(np.square(update).mean())
    rotated = rotate_block(update, 0, SHARED)
    assert (update**4).mean() > 100
    assert abs((rotated**4).mean() - 3.0) < 5 * np.sqrt(24 / len(update))
    assert_follows(rotated, stats.norm.cdf)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("jopeq", {"epsilon": 4.0, "rate": 2.0}),
        ("jopeq", {"epsilon": 4.0, "rate": 2.0, "lattice": "A2"}),
        ("response", {"epsilon": 3.0, "rate": 2.0}),
        ("laplace", {"epsilon": 3.0}),
    ],
)
def test_payloads_do_not_depend_on_the_chunking(name, parameters, monkeypatch):
    coder = scheme(name, **parameters)
    update = np.random.default_rng(2).normal(size=9001)
    state = {"a": update[:3333], "b": update[3333:].reshape(-1, 4)}
    seed = SEED if coder.codec.has_dither else None
    payloads, decoded = set(), []
    for chunk in (1 << 16, 4096, 100):
        monkeypatch.setattr(jopeq.wire.coders, "_CHUNK_SAMPLES", chunk)
        noise = PrivateStream.reproducible(SEED[::-1])
        payloads.add(coder.encode(state, seed=seed, noise=noise, on_invalid="raise"))
        decoded.append(coder.open(min(payloads)).decode())
    assert len(payloads) == 1
    assert np.array_equal(decoded[0], decoded[1])
    assert np.array_equal(decoded[0], decoded[2])
