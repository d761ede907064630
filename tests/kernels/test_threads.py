"""Ranges of whole chunks, one a thread; errors come through; forks do not hang."""

import importlib
import itertools
import os
import subprocess
import sys
import threading

import pytest

from jopeq.kernels.threads import in_threads, set_threads, threads

MODULE = importlib.import_module("jopeq.kernels.threads")


@pytest.fixture(autouse=True)
def _restored():
    yield
    set_threads(None)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("samples", [0, 1, 63, 64, 65, 128, 640, 1000])
def test_ranges_are_whole_chunks_that_make_all_samples(samples, count, many_threads):
    set_threads(count)
    ranges = in_threads(lambda begin, end: (begin, end), samples, 64, 1)
    assert ranges[0][0] == 0
    assert ranges[-1][1] == samples
    for (_, end), (begin, _) in itertools.pairwise(ranges):
        assert end == begin
        assert begin % 64 == 0
    assert len(ranges) == max(1, min(count, -(-samples // 64)))
    if samples:
        assert all(begin < end for begin, end in ranges)
        sizes = [-(-(end - begin) // 64) for begin, end in ranges]
        assert max(sizes) - min(sizes) <= 1


def test_small_updates_never_meet_a_thread():
    set_threads(8)
    least = MODULE._LEAST_ENTRIES
    for samples, size in ((2 * least - 1, 1), (least - 1, 2), (10, 8)):
        ran = in_threads(lambda begin, end: threading.current_thread(), samples, 64, size)
        assert ran == [threading.current_thread()]
    assert len(in_threads(lambda begin, end: 0, 2 * least, 64, 1)) == 2
    assert len(in_threads(lambda begin, end: 0, least, 64, 2)) == 2


def test_ranges_run_at_the_same_time_and_results_come_in_order(many_threads):
    set_threads(4)
    meeting = threading.Barrier(4, timeout=300)
    for _ in range(20):
        ran = in_threads(lambda begin, end: (begin, meeting.wait())[0], 4, 1, 1)
        assert ran == [0, 1, 2, 3]


def test_errors_come_through(many_threads):
    set_threads(3)

    def work(begin, end):
        if begin == 2:
            raise KeyError("third")

    with pytest.raises(KeyError, match="third"):
        in_threads(work, 3, 1, 1)
    assert in_threads(lambda begin, end: end, 3, 1, 1) == [1, 2, 3]


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "2"])
def test_wrong_counts_are_refused(wrong):
    set_threads(2)
    with pytest.raises(ValueError, match="count"):
        set_threads(wrong)
    assert threads() == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_encodes_too():
    """The pool's threads stay behind in the parent: a child that waits for them hangs."""
    code = """
import os, signal, threading
from jopeq.kernels.threads import in_threads, set_threads
set_threads(2)
work = lambda begin, end: end - begin
meeting = threading.Barrier(2)
in_threads(lambda begin, end: meeting.wait(), 1 << 20, 64, 1)  # so that both threads exist
child = os.fork()
if child == 0:
    signal.alarm(300)  # a hang, no slowness
    os._exit(0 if sum(in_threads(work, 1 << 20, 64, 1)) == 1 << 20 else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=600)
    assert done.returncode == 0
