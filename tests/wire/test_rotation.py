import hashlib

import numpy as np
import pytest

from jopeq.random.streams import SharedStream
from jopeq.wire.samples import MAX_BLOCK, blocks, hadamard, rotate_block, signs, unrotate_block

SHARED = SharedStream(bytes(range(32)))


def sylvester(size):
    """The Hadamard matrix by its definition, H[i, j] = (−1)^popcount(i & j), over √n."""
    matrix = np.array([[(-1.0) ** (i & j).bit_count() for j in range(size)] for i in range(size)])
    return matrix / np.sqrt(size)


@pytest.mark.parametrize("size", [1, 2, 4, 32])
def test_hadamard_is_the_orthonormal_matrix(size):
    matrix = np.array([hadamard(row) for row in np.eye(size)])
    np.testing.assert_allclose(matrix, sylvester(size), atol=1e-15)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(size), atol=1e-14)


@pytest.mark.parametrize("size", [1, 8, 1 << 12, MAX_BLOCK])
def test_hadamard_is_its_own_inverse_and_leaves_its_input_alone(size):
    values = np.random.default_rng(size).normal(size=size).astype(np.float32)
    before = values.copy()
    turned = hadamard(values)
    assert turned.dtype == np.float64
    np.testing.assert_allclose(hadamard(turned), values, atol=1e-12)
    assert np.array_equal(values, before)
    with pytest.raises(ValueError, match="power of two"):
        hadamard(np.zeros(3 * size))


@pytest.mark.parametrize("size", [2, 64, MAX_BLOCK, 4 * MAX_BLOCK])
def test_every_sum_is_rounded_as_the_document_says(size):
    """Bit for bit: butterflies of widths 1, 2, 4, …, then the division."""
    values = np.random.default_rng(size).normal(size=size)
    expected, width = values.copy(), 1
    while width < size:
        left, right = expected.reshape(-1, 2, width).swapaxes(0, 1).copy()
        expected = np.stack((left + right, left - right), axis=1).reshape(-1)
        width *= 2
    assert np.array_equal(hadamard(values), expected / np.sqrt(size))


def test_blocks_cover_every_entry_once_in_order():
    for count in (*range(70), MAX_BLOCK - 1, MAX_BLOCK, MAX_BLOCK + 1, 3 * MAX_BLOCK + 77):
        found = list(blocks(count))
        assert [start for start, _ in found] == [0, *(stop for _, stop in found)][: len(found)]
        assert (found[-1][1] if found else 0) == count
        sizes = [stop - start for start, stop in found]
        assert all(size & (size - 1) == 0 and size <= MAX_BLOCK for size in sizes)
        assert sizes == sorted(sizes, reverse=True)
        small = [size for size in sizes if size < MAX_BLOCK]
        assert len(small) == (count % MAX_BLOCK).bit_count()


def test_signs_are_the_documented_bits_from_any_place():
    everything = signs(SHARED, 0, 500)
    octets = SHARED.read(lane=1, start=0, count=63)
    expected = [1.0 - 2.0 * (int(octets[i // 8]) >> (i % 8) & 1) for i in range(500)]
    assert everything.tolist() == expected
    for start in (0, 1, 7, 8, 9, 63, 64, 130):
        for count in (0, 1, 7, 8, 9, 200):
            assert np.array_equal(signs(SHARED, start, count), everything[start:][:count])


def test_signs_are_fair_and_differ_between_seeds(assert_counts):
    found = signs(SHARED, 0, 1 << 16)
    assert_counts([(found > 0).sum(), (found < 0).sum()])
    other = signs(SharedStream(bytes(32)), 0, 1 << 16)
    assert_counts([(found == other).sum(), (found != other).sum()])


@pytest.mark.parametrize(("start", "size"), [(0, 1), (0, 64), (64, 32), (96, 1), (8, 1 << 12)])
def test_blocks_turn_and_turn_back(start, size):
    values = np.random.default_rng(size).normal(size=size)
    turned = rotate_block(values, start, SHARED)
    expected = hadamard(values * signs(SHARED, start, len(values)))
    np.testing.assert_allclose(turned, expected, atol=1e-12)
    np.testing.assert_allclose(unrotate_block(turned, start, SHARED), values, atol=1e-13)


def test_rotated_coordinates_have_the_tails_that_are_promised():
    """Over random signs each coordinate is sub-Gaussian of variance ‖h‖²/n, whatever h is."""
    generator, size = np.random.default_rng(0), 64
    for update in (np.eye(size)[3], np.ones(size) / 8, generator.normal(size=size) / 8):
        norm = np.linalg.norm(update)
        seeds = [hashlib.sha256(b"tails %d" % number).digest() for number in range(512)]
        turned = np.array([rotate_block(update, 0, SharedStream(seed)) for seed in seeds])
        turned *= 8 / norm
        mean_square = np.square(turned).mean(axis=0)
        assert np.abs(mean_square - 1).max() < 5 * np.sqrt(2 / 512)
        for level in (1.5, 2.0, 3.0):
            assert (np.abs(turned) > level).mean() <= 2 * np.exp(-(level**2) / 2) * 1.2
