"""Chunks: whole blocks of key stream, whole bytes, and buffers of a few mebibytes."""

from __future__ import annotations

import pytest

from jopeq.wire.packing import Packing

pytest.importorskip("numba")

from jopeq.kernels.cpu.steps import Rooms, prepared


def test_chunks_start_on_whole_blocks_and_bytes(chunked):
    step = prepared(chunked.recipe)
    assert step.size == chunked.dimension
    lanes = [*step.lanes, *([step.dither] if step.is_dithered else [])]
    for lane in lanes:
        assert step.chunk * lane.bytes_per_sample % 64 == 0
    for chunks in (1, 2, 3, 10):
        samples = chunks * step.chunk
        assert step.body_size(samples) == chunks * step.body_size(step.chunk)
        letters = getattr(chunked.recipe.step, "letters", None)
        if letters is not None:
            packing = Packing(letters)
            assert samples % packing.digits == 0
            assert step.body_size(samples) * 8 == samples // packing.digits * packing.bits


@pytest.mark.parametrize("count", [0, 1, 2, 63, 64, 65, 1000, 99_999])
def test_bodies_have_the_size_the_coder_expects(chunked, count):
    chunked.coder.check(prepared(chunked.recipe).body_size(count), count)


def test_a_chunk_is_a_few_mebibytes_at_most_and_no_crumb(chunked):
    step = prepared(chunked.recipe)
    rooms = Rooms(step, step.chunk)
    stream = sum(lane.bytes_per_sample for lane in step.lanes)
    chunk = step.chunk * (4 * step.size + stream) + rooms.letters.nbytes
    assert 1 << 20 < chunk < 1 << 22
    assert sum(room.nbytes for room in rooms.misses) < 1 << 23


def test_bytes_of_chunks_follow_each_other(chunked):
    step = prepared(chunked.recipe)
    end = 0
    for number in range(3):
        first = number * step.chunk
        for samples in (1, step.chunk - 1):
            place = step.place(first, first + samples)
            assert (place.start, place.stop) == (end, step.body_size(first + samples))
        place = step.place(first, first + step.chunk)
        assert place.start == end
        end = place.stop
