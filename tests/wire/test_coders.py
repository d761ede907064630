"""From letters to the body of a payload: chunks join, sizes are checked first."""

import numpy as np
import pytest

from jopeq.errors import PayloadError
from jopeq.wire.coders import IntegerCoder, LetterCoder, WordCoder
from jopeq.wire.packing import Packing

SOURCE = np.random.default_rng(9)


def sent_for(coder, count):
    if isinstance(coder, LetterCoder):
        return SOURCE.integers(0, coder.letters, count)
    if isinstance(coder, IntegerCoder):
        return np.rint(4 * SOURCE.standard_normal((count, coder.dimension))).astype(np.int64)
    values = 100 * SOURCE.standard_normal((count, coder.dimension))
    return values.astype(coder.dtype)


CODERS = [
    *map(LetterCoder, (2, 3, 5, 7, 256, 65536)),
    *map(IntegerCoder, (1, 8)),
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
    first, position = coder.decode(view, 0, coder.chunk)
    second, position = coder.decode(view, position, extra)
    assert position == len(body)
    np.testing.assert_array_equal(np.concatenate((first, second)), sent)
    if isinstance(coder, LetterCoder):  # chunks of letters leave no trace
        assert body == Packing(coder.letters).pack(sent)


@pytest.mark.parametrize("coder", [c for c in CODERS if not isinstance(c, IntegerCoder)], ids=repr)
def test_sizes_are_exact_at_a_fixed_rate(coder):
    for samples in (0, 1, 50):
        size = len(coder.encode(sent_for(coder, samples)))
        coder.check(size, samples)
        with pytest.raises(PayloadError, match=f"claims {samples} samples"):
            coder.check(size + 1, samples)
    with pytest.raises(PayloadError, match="claims"):
        coder.check(8, 1 << 60)


def test_entropy_coded_bodies_have_a_smallest_size():
    coder = IntegerCoder(2)
    coder.check(100, 360 * 50)
    with pytest.raises(PayloadError, match="claims 18001 samples in 100 bytes"):
        coder.check(100, 360 * 50 + 1)
    with pytest.raises(PayloadError):
        coder.check(0, 1)
    coder.check(0, 0)
