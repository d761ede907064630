"""Mixed radix: the documented layout, its cost, and what is refused."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jopeq.errors import PayloadError
from jopeq.wire.packing import Packing, _group

BASES = [2, 3, 4, 5, 6, 7, 8, 9, 10, 16, 25, 100, 255, 256, 257, 1000, 65536, 2**20, 2**32]
TABLE = {  # docs/wire-format.md, section 5.1
    2: (64, 64), 3: (29, 46), 4: (32, 64), 5: (27, 63), 6: (17, 44), 7: (21, 59),
    8: (21, 63), 9: (17, 54), 16: (16, 64), 25: (12, 56), 256: (8, 64),
}  # fmt: skip


def by_hand(indices, base):
    """The layout as the document has it, in big integers."""
    digits, bits = _group(base)
    number = used = 0
    for start in range(0, len(indices), digits):
        group = indices[start : start + digits]
        width = bits if len(group) == digits else (base ** len(group) - 1).bit_length()
        number |= sum(a * base**i for i, a in enumerate(group)) << used
        used += width
    return number.to_bytes(-(-used // 8), "little")


def test_digits_and_bits_are_those_of_the_document():
    assert {base: _group(base) for base in TABLE} == TABLE


@pytest.mark.parametrize("base", BASES)
def test_no_other_grouping_is_cheaper(base):
    digits, bits = _group(base)
    assert base**digits <= 1 << bits
    assert bits <= 64
    if base & (base - 1) == 0:
        assert bits == digits * math.log2(base)  # integer rates spend exactly their bits
    for other in range(1, 65):
        cost = (base**other - 1).bit_length()
        if cost <= 64:
            assert bits * other <= cost * digits


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
        packed = packing.pack(indices.astype(np.int64))
        assert packed == by_hand(indices.tolist(), base)
        assert len(packed) == packing.size(count)
        assert packing.unpack(packed, count).astype(np.uint64).tolist() == indices.tolist()


@pytest.mark.parametrize("base", [2, 3, 5, 9, 256])
def test_whole_blocks_may_be_packed_apart(base):
    packing = Packing(base)
    indices = np.random.default_rng(3).integers(0, base, 2 * packing.block + 7)
    apart = packing.pack(indices[: packing.block]) + packing.pack(indices[packing.block :])
    assert apart == packing.pack(indices)


@pytest.mark.parametrize("base", [3, 5, 6, 7, 25])
def test_numbers_beyond_the_last_letter_are_refused(base):
    packing = Packing(base)
    digits, bits = _group(base)
    largest = base**digits - 1
    width = -(-bits // 8)
    good = packing.unpack(largest.to_bytes(width, "little"), digits)
    assert good.tolist() == [base - 1] * digits
    with pytest.raises(PayloadError, match="outside the codebook"):
        packing.unpack((largest + 1).to_bytes(width, "little"), digits)
    with pytest.raises(PayloadError, match="padding is not zero"):
        Packing(2).unpack(b"\x0f", 3)
    for length in (0, 1, 3, 100):
        with pytest.raises(PayloadError, match=f"8 letters take 2 bytes, got {length}"):
            Packing(4).unpack(bytes(length), 8)


@pytest.mark.parametrize("letters", [0, 1, -5, 2**63 + 1])
def test_alphabets_have_limits(letters):
    with pytest.raises(ValueError, match="letters must be between 2 and 2"):
        Packing(letters)
