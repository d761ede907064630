import itertools

import numpy as np
import pytest

import jopeq.wire.coders
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.schemes import scheme
from jopeq.wire.entries import Entries
from jopeq.wire.samples import MAX_BLOCK, SampleReader, SampleWriter, blocks, rotate_block
from jopeq.wire.scaling import Scale

SEED = bytes(range(32))
SHARED = SharedStream(SEED)
SHAPES = ((3, 5), (0,), (), (41,), (2, 2, 2))


def tensors(shapes=SHAPES):
    generator = np.random.default_rng(7)
    arrays = tuple(generator.normal(size=shape).astype(np.float32) for shape in shapes)
    return Entries(tuple(f"t{i}" for i in range(len(shapes))), arrays)


def flat(entries):
    return np.concatenate([tensor.reshape(-1) for tensor in entries.tensors]).astype(np.float64)


def read_all(entries, scales, rotation, dimension, chunk):
    reader = SampleReader(entries, scales, rotation)
    samples = -(-entries.count // dimension)
    pieces = [
        reader.read(first, min(first + chunk, samples), dimension)
        for first in range(0, samples, chunk)
    ]
    assert all(piece.shape[1] == dimension for piece in pieces)
    return np.concatenate(pieces)


def turned(values, shared=SHARED):
    rotated = [rotate_block(values[low:high], low, shared) for low, high in blocks(len(values))]
    return np.concatenate(rotated)


SCALES = {
    "none": [],
    "one": [Scale(3.0, 0.25)],
    "each": [Scale(2.0**i, 0.5 * i) for i in range(len(SHAPES))],
}


@pytest.mark.parametrize("kind", SCALES)
@pytest.mark.parametrize("is_rotated", [False, True])
def test_samples_are_read_and_written_alike_whatever_the_chunks(is_rotated, kind):
    entries, scales, rotation = tensors(), SCALES[kind], SHARED if is_rotated else None
    expected = flat(entries)
    if scales:
        units = scales if len(scales) > 1 else scales * len(SHAPES)
        pieces = zip(units, entries.tensors, strict=True)
        wide = [scale.apply(tensor.astype(np.float64).reshape(-1)) for scale, tensor in pieces]
        expected = np.concatenate(wide)
    if is_rotated:
        expected = turned(expected)
    for dimension, chunk in itertools.product((1, 2, 3, 8), (1, 2, 7, 1000)):
        samples = read_all(entries, scales, rotation, dimension, chunk)
        assert np.array_equal(samples.reshape(-1)[: entries.count], expected)
        assert not samples.reshape(-1)[entries.count :].any()
        assert samples.size - entries.count < dimension
        writer = SampleWriter(entries.sizes, scales, rotation)
        for first in range(0, len(samples), chunk):
            writer.write(first, samples[first : first + chunk].copy())
        back = writer.finish()
        assert back.dtype == np.float32
        np.testing.assert_allclose(back, flat(entries), atol=2e-5 if is_rotated else 1e-6)


def test_rotation_runs_over_tensors_and_blocks():
    """Blocks are of the whole row: larger than tensors, and more than one."""
    entries = tensors(((MAX_BLOCK - 5,), (5, 3), (1000,)))
    samples = read_all(entries, [Scale(1.0)], SHARED, 2, 999)
    assert np.array_equal(samples.reshape(-1)[: entries.count], turned(flat(entries)))
    halves = read_all(tensors(((MAX_BLOCK - 5,),)), [Scale(1.0)], SHARED, 2, 999)
    assert not np.array_equal(halves[:100], samples[:100])


# rotate=True, as schemes use it

PRECISE = [
    ("sdq", {"rate": 12.0}),
    ("sdq", {"rate": 8.0, "lattice": "A2"}),
    ("sdq", {"step": 0.001, "coding": "entropy"}),
    ("response", {"epsilon": 60.0, "rate": 8.0}),
    ("response", {"epsilon": 60.0, "rate": 8.0, "clip": 10.0}),
]


@pytest.mark.parametrize(("name", "parameters"), PRECISE)
@pytest.mark.parametrize("shape", [(), (1,), (0,), (1000,), (7, 11, 13)])
def test_rotated_schemes_give_back_what_they_took(name, parameters, shape):
    coder = scheme(name, rotate=True, spread=6.0, **parameters)  # so that nothing is clipped
    update = np.random.default_rng(1).normal(size=shape)
    payload, counted = coder.encode(update, seed=SEED, statistics=True)
    assert counted.clipped == counted.overloaded == 0
    back = coder.decode(payload)
    assert back.shape == shape
    unit = coder.clip or 6.0 * np.sqrt(np.square(update).sum() / max(update.size, 1))
    # errors of up to half a step each, mixed by the rotation
    np.testing.assert_allclose(back, update, atol=0.02 * unit)


def kurtosis(values):
    return float((values**4).mean() / np.square(values).mean() ** 2)


def test_a_spiky_update_looks_gaussian_once_rotated(assert_follows):
    from scipy import stats

    generator = np.random.default_rng(3)
    update = np.zeros(1 << 14)
    places = generator.choice(len(update), size=200, replace=False)
    update[places] = generator.standard_t(3, size=200)
    entries = Entries.of_update(update)
    unit = float(np.sqrt(np.square(update).mean()))
    plain = read_all(entries, [Scale(unit)], None, 1, 1000)[:, 0]
    rotated = read_all(entries, [Scale(unit)], SHARED, 1, 1000)[:, 0]
    assert kurtosis(plain) > 100
    assert abs(kurtosis(rotated) - 3.0) < 5 * np.sqrt(24 / len(update))
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
@pytest.mark.parametrize("rotate", [False, True])
def test_payloads_do_not_depend_on_the_chunking(name, parameters, rotate, monkeypatch):
    coder = scheme(name, rotate=rotate, **parameters)
    update = np.random.default_rng(2).normal(size=9001)
    state = Entries(("a", "b"), (update[:3333], update[3333:].reshape(-1, 4)))
    seed = SEED if coder.is_seeded else None
    payloads, decoded = set(), []
    for chunk in (1 << 16, 4096, 100):
        monkeypatch.setattr(jopeq.wire.coders, "_CHUNK_SAMPLES", chunk)
        noise = PrivateStream.reproducible(SEED[::-1])
        payloads.add(coder.encode(state, seed=seed, noise=noise, on_invalid="raise"))
        decoded.append(coder.open(min(payloads)).decode())
    assert len(payloads) == 1
    assert np.array_equal(decoded[0], decoded[1])
    assert np.array_equal(decoded[0], decoded[2])
