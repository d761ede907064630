"""One update coded by the plain path and by compiled kernels: nothing may differ."""

import hashlib
import importlib
from contextlib import contextmanager

import numpy as np
import pytest

from jopeq import kernels
from jopeq.random.streams import ChaChaStream, PrivateStream

KEY = bytes(range(200, 232))


@contextmanager
def mode(chosen, threads=None):
    kernels.use(chosen)
    kernels.set_threads(threads)
    try:
        yield
    finally:
        kernels.use(None)
        kernels.set_threads(None)


@contextmanager
def recorded_lanes():
    """Which lanes of private streams the plain path reads: it tells which branches were taken."""
    lanes, read = set(), ChaChaStream.read

    def spy(stream, *, lane, start, count):
        if isinstance(stream, PrivateStream):
            lanes.add(lane)
        return read(stream, lane=lane, start=start, count=count)

    ChaChaStream.read = spy
    try:
        yield lanes
    finally:
        ChaChaStream.read = read


def outcome(work):
    """What came of it: a result or an error, comparable."""
    try:
        return "done", work()
    except Exception as error:
        return type(error), str(error)


def decoded(scheme, payload, key):
    opened = scheme.open(payload, secret=key)
    flat = opened.decode()
    return opened.header, flat.dtype, flat.tobytes()


@pytest.fixture(scope="session")
def on():
    """``with on(threads=2)`` codes by kernels."""
    pytest.importorskip("numba")
    return lambda threads=None: mode("on", threads)


@pytest.fixture(scope="session")
def same_outcome(on):
    """The outcome of ``work()``, which is the same on both paths."""

    def check(work, threads=None):
        with mode("off"):
            plain = outcome(work)
        with on(threads):
            assert outcome(work) == plain
        return plain

    return check


@pytest.fixture(scope="session")
def agree(on):
    """Encode and decode on both paths; bytes, counts and entries must be equal.

    Returns the payload, the counts and the private lanes that were read.
    """

    def check(scheme, update, *, keyed=False, threads=None, label="noise"):
        key = KEY if keyed else None
        seed = KEY[:16] if keyed else KEY
        secret = hashlib.sha256(label.encode()).digest()

        def encode():
            stream = PrivateStream.reproducible(secret)
            own_seed = seed if scheme.codec.has_dither else None
            return scheme.encode(update, seed=own_seed, secret=key, noise=stream, counts=True)

        with mode("off"), recorded_lanes() as lanes:
            payload, counted = encode()
            entries_back = decoded(scheme, payload, key)
        with on(threads):
            assert scheme.codec.recipe is not None
            compiled, also_counted = encode()
            assert compiled == payload, _where(compiled, payload)
            assert also_counted == counted
            assert decoded(scheme, payload, key) == entries_back
        return payload, counted, lanes

    return check


def _where(one, two):
    if len(one) != len(two):
        return f"{len(one)} bytes, not {len(two)}"
    different = np.flatnonzero(np.frombuffer(one, np.uint8) != np.frombuffer(two, np.uint8))
    return f"{len(different)} bytes differ, the first at {different[0]} of {len(one)}"


@pytest.fixture(scope="session")
def gaussian():
    """Reproducible float32 entries, a third of their mean size beyond the unit ball."""

    def make(count, sigma=0.4, seed=0):
        return np.random.default_rng(seed).normal(0.0, sigma, count).astype(np.float32)

    return make


@pytest.fixture(scope="session")
def chunk_of():
    """Samples in a chunk of a scheme's kernels."""
    pytest.importorskip("numba")
    from jopeq.kernels.cpu.codec import prepare

    return lambda scheme: prepare(scheme.codec.recipe).chunk


@pytest.fixture
def many_threads(monkeypatch):
    """Threads for small updates too."""
    module = importlib.import_module("jopeq.kernels.threads")  # a function hides its name
    monkeypatch.setattr(module, "_LEAST_ENTRIES", 1)
