"""Letters and words as bytes: mixed radix, chunks, sizes, limits."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jopeq.errors import PayloadError
from jopeq.wire.coders import Packing, WordCoder

# Mixed radix

BASES = [
    *(1 << width for width in range(1, 18)),
    3,
    5,
    6,
    7,
    9,
    10,
    25,
    100,
    255,
    257,
    1000,
    2**20,
    2**32,
]


def by_hand(indices, base):
    """The layout as the document has it, in big integers; its cheapest grouping, and its bits."""
    costs = {n: (base**n - 1).bit_length() for n in range(1, 65)}
    digits = min((cost / n, -n) for n, cost in costs.items() if cost <= 64)[1] * -1
    number = used = 0
    for start in range(0, len(indices), digits):
        group = indices[start : start + digits]
        number |= sum(a * base**i for i, a in enumerate(group)) << used
        used += costs[len(group)]
    return number.to_bytes(-(-used // 8), "little"), costs[digits] / digits


def test_the_bounds_that_the_readme_states():
    """n letters cost ⌈n·log₂K⌉ bits, so what is lost peaks where n·log₂K just passes b bits."""
    edges = {math.floor(2.0 ** (bits / n)) + 1 for n in range(1, 65) for bits in range(1, 65)}
    lost = {
        base: Packing(base).bits_per_letter / math.log2(base) - 1
        for base in edges
        if base <= 1 << 32  # the largest codebook
    }
    assert max(lost[base] for base in lost if base <= 1 << 8) == pytest.approx(0.01576, abs=1e-5)
    assert max(lost.values()) == pytest.approx(1 / 43, abs=1e-5)  # 22 bits for 21.5
    others = np.random.default_rng(0).integers(2, 1 << 32, 2000)
    assert all(
        Packing(int(base)).bits_per_letter < (1 + 1 / 43) * math.log2(base) for base in others
    )


@settings(max_examples=300)
@given(
    st.sampled_from(BASES) | st.integers(2, 2**63),
    st.integers(0, 80) | st.sampled_from([200, 1729]),
    st.integers(0, 2**32),
)
def test_letters_come_back_and_the_bytes_are_the_documents(base, count, seed):
    """Any alphabet; also where all letters are the last one."""
    packing = Packing(base)
    drawn = np.random.default_rng(seed).integers(0, base, count, dtype=np.uint64)
    for indices in (drawn, np.full(count, base - 1, dtype=np.uint64)):
        packed = packing.encode(indices.astype(np.int64))
        assert (packed, packing.bits_per_letter) == by_hand(indices.tolist(), base)
        assert len(packed) == packing.size(count)
        assert packing.unpack(packed, count).astype(np.uint64).tolist() == indices.tolist()


@pytest.mark.parametrize("base", [3, 5, 6, 7, 25])
def test_numbers_beyond_the_last_letter_are_refused(base):
    packing = Packing(base)
    digits, width = packing.digits, -(-packing.bits // 8)
    largest = base**digits - 1
    good = packing.unpack(largest.to_bytes(width, "little"), digits)
    assert good.tolist() == [base - 1] * digits
    with pytest.raises(PayloadError, match="outside the codebook"):
        packing.unpack((largest + 1).to_bytes(width, "little"), digits)
    with pytest.raises(PayloadError, match="padding is not zero"):
        Packing(2).unpack(b"\x0f", 3)
    for length in (0, 1, 3, 100):
        with pytest.raises(PayloadError, match=f"take 2 bytes.* {length}"):
            Packing(4).unpack(bytes(length), 8)


@pytest.mark.parametrize("letters", [0, 1, -5, 2**63 + 1])
def test_alphabets_have_limits(letters):
    with pytest.raises(ValueError, match="letters must be between 2 and 2"):
        Packing(letters)


# Coders: chunks join, sizes are checked first

SOURCE = np.random.default_rng(9)


def sent_for(coder, count):
    if isinstance(coder, Packing):
        return SOURCE.integers(0, coder.letters, count)
    values = 100 * SOURCE.standard_normal((count, coder.dimension))
    return values.astype(coder.dtype)


CODERS = [
    *map(Packing, (2, 3, 5, 7, 256, 65536)),
    *(WordCoder(1, "<f4"), WordCoder(3, "<i4"), WordCoder(1 << 16, "<i4")),
]


@pytest.mark.parametrize("coder", CODERS, ids=repr)
@pytest.mark.parametrize("extra", [1, 100])
def test_chunks_are_read_one_after_the_other(coder, extra):
    if coder == WordCoder(1 << 16, "<i4"):
        extra = 2
    count = coder.chunk + extra
    sent = sent_for(coder, count)
    body = coder.encode(sent[: coder.chunk]) + coder.encode(sent[coder.chunk :])
    coder.check(len(body), count)
    view = memoryview(body)
    first = coder.decode(view, 0, coder.chunk)
    second = coder.decode(view, coder.chunk, extra)
    np.testing.assert_array_equal(np.concatenate((first, second)), sent)
    if isinstance(coder, Packing):  # chunks of letters leave no trace
        assert body == Packing(coder.letters).encode(sent)


@pytest.mark.parametrize("coder", CODERS, ids=repr)
def test_sizes_are_exact_at_a_fixed_rate(coder):
    for samples in (0, 1, 50):
        size = len(coder.encode(sent_for(coder, samples)))
        coder.check(size, samples)
        with pytest.raises(
            PayloadError, match=f"claims {samples} samples|{samples} samples, as the header claims"
        ):
            coder.check(size + 1, samples)
    with pytest.raises(PayloadError, match="claims"):
        coder.check(8, 1 << 60)
