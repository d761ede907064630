"""Compiled kernels give the plain path's bytes: any scheme, source, size, thread; errors alike."""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jopeq
from jopeq.random.streams import PrivateStream
from tests.golden import make

EXTRA_LANE = 1 << 31  # read when twelve exponent bits are zero
SCHEMES = [
    jopeq.scheme("sdq", rate=2.0),
    jopeq.scheme("sdq", rate=math.log2(3)),
    jopeq.scheme("sdq", rate=math.log2(5), lattice="A2"),
    jopeq.scheme("jopeq", epsilon=4.0, rate=1.0),
    jopeq.scheme("jopeq", epsilon=4.0, rate=1.5, lattice="A2"),
    jopeq.scheme("response", epsilon=4.0, rate=2.0),
]
SCALINGS = [
    *({}, {"clip": 0.05}, {"clip": 3.0}, {"center": True}, {"per": "tensor"}, {"spread": 1.0}),
    *({"per": "tensor", "center": True}, {"per": "tensor", "clip": 0.2}, {"spread": 0.5}),
]
each_scheme = pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: f"{s.name}-{s.dimension}")


# Any scheme and any update

EPSILONS = st.sampled_from([0.1, 0.5, 1.7, 4.0, 20.0])
LETTERS = st.one_of(st.integers(2, 256), st.sampled_from([2, 4, 8, 16, 32, 64, 128, 256]))
SIZES = {"Z": 1, "A2": 2}
NAMES = ["sdq", "jopeq", "response"]


@st.composite
def schemes(draw):
    """Any scheme that kernels code: alphabets of all sizes, both lattices."""
    name, epsilon = draw(st.sampled_from(NAMES)), draw(EPSILONS)
    if name == "response":
        levels = draw(st.integers(2, 60) | st.just(200))
        epsilon = max(epsilon, 4.0) if levels > 60 else epsilon
        return jopeq.scheme(name, epsilon=epsilon, rate=math.log2(levels), levels=levels)
    lattice = draw(st.sampled_from(sorted(SIZES)))
    parameters = {"rate": math.log2(draw(LETTERS)) / SIZES[lattice], "lattice": lattice}
    parameters["gamma"] = draw(st.sampled_from([0.5, 1.2, 4.0]))
    if name == "jopeq":
        parameters["epsilon"] = epsilon
    return jopeq.scheme(name, **parameters)


@st.composite
def updates(draw):
    """Up to five tensors of any float type: constant, or normal and orders of magnitude apart."""
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    state = {}
    shapes = [(), (0,), (1,), (7,), (3, 5), (64,), (2, 0, 3), (1000,), (41, 73)]
    for number in range(draw(st.integers(1, 5))):
        shape = draw(st.sampled_from(shapes))
        dtype = draw(st.sampled_from([np.float16, np.float32, np.float32, np.float64]))
        if draw(st.integers(0, 4)):
            mean, sigma = draw(st.sampled_from([0.0, 0.3])), 10.0 ** draw(st.integers(-3, 2))
            values = np.asarray(rng.normal(mean, sigma, shape))
        else:
            constants = [0.0, -0.0, 0.25, 0.5, 1.0, -1.0, 1 + 2**-23, 1e-38]
            values = np.full(shape, draw(st.sampled_from(constants)))
        values = values.astype(dtype)
        state[f"tensor {number}"] = values.T if draw(st.booleans()) else values
    return state


@settings(max_examples=250, suppress_health_check=list(HealthCheck))
@given(
    scheme=schemes(),
    scaling=st.sampled_from(SCALINGS),
    state=updates(),
    threads=st.integers(1, 4),
    keyed=st.booleans(),
    seed=st.integers(0, 9),
)
def test_both_paths_agree(scheme, scaling, state, threads, keyed, seed, agree):
    scheme = replace(scheme, **scaling)
    keyed = keyed and scheme.codec.has_dither
    agree(scheme, state, threads=threads, keyed=keyed, label=f"noise {seed}")


def test_golden_bytes(on):
    """Every payload that is kept, written and read by kernels."""
    with on():
        for entry in make.KEPT.values():
            make.check(entry)
        cases = [entry["case"][:2] for entry in make.KEPT.values()]
        known = [jopeq.scheme(name, **parameters) for name, parameters in cases]
        assert {s.name for s in known if s.codec.recipe is not None} == set(NAMES)


# Branches that few samples take


def test_every_alphabet_overloads_and_clips(agree, gaussian):
    for lattice, rate in [("Z", 2), ("A2", 1.5), ("A2", 4)]:
        parameters = {"rate": rate, "lattice": lattice, "gamma": 1.3, "spread": 1.0}
        _, counted, _ = agree(jopeq.scheme("sdq", **parameters), gaussian(5003))
        assert 0 < counted.overloaded < counted.samples
        _, counted, _ = agree(jopeq.scheme("jopeq", epsilon=4.0, **parameters), gaussian(5003))
        assert counted.clipped > 0


@pytest.mark.parametrize(("lattice", "rate"), [("Z", 8.0), ("A2", 4.0)])
def test_rare_branches_of_the_samplers(lattice, rate, agree, gaussian):
    """The lanes that the plain path reads tell which branches were taken."""
    scheme = jopeq.scheme("jopeq", epsilon=4.0, rate=rate, lattice=lattice)
    _, _, read = agree(scheme, gaussian(120_000))
    assert EXTRA_LANE in read


@pytest.mark.parametrize(
    "parameters",
    [
        {"epsilon": 47.0, "rate": 8.0},
        {"epsilon": 60.0, "rate": 4.0, "lattice": "A2", "nu": 50.0, "squared_scale": 0.02},
    ],
    ids=str,
)
def test_noisy_values_are_cut_where_the_sampler_ends(parameters, agree, private):
    """Only narrow noise, and inputs on the edge of the ball, reach the end in a test."""
    scheme = jopeq.scheme("jopeq", clip=1.0, gamma=0.4, **parameters)
    count = 4000
    sample = np.zeros(scheme.dimension, np.float32)
    sample[0] = 1.0
    noisy = sample + scheme.noise.sample(private("noise"), 0, count)
    assert (np.abs(noisy) > scheme.codec.recipe.noise.limit).any()
    agree(scheme, np.tile(sample, count))


# Sizes, threads and sources


@each_scheme
def test_sizes(scheme, agree, gaussian, chunk_of, many_threads):
    """Around words and chunks, and ranges of several chunks for every thread."""
    chunk = chunk_of(scheme) * scheme.dimension
    for count in (0, 1, 2, 7, 63, 64, 65, 1000):
        agree(scheme, gaussian(count))
    for threads in (1, 3):
        for count in (chunk - 1, chunk, chunk + 1, 3 * chunk + 5):
            agree(scheme, gaussian(count), threads=threads)
    agree(scheme, gaussian(5 * chunk + 3), threads=2)


def _views(x):
    even = np.zeros(2 * len(x), np.float32)
    even[::2] = x
    fixed = x.copy()
    fixed.setflags(write=False)
    shifted = np.zeros(4 * len(x) + 1, np.uint8)[1:].view(np.float32)
    shifted[:] = x
    return {
        "float16": x.astype(np.float16),
        "float64": x.astype(np.float64) * 1.000000123,
        "tiny float64": x[:999].astype(np.float64) * 1e-300,
        "longdouble": x.astype(np.longdouble),
        "big-endian float32": x.astype(">f4"),
        "big-endian float64": x.astype(">f8"),
        "every second": even[::2],
        "backwards": x[::-1],
        "read-only": fixed,
        "read-only float64": fixed.astype(np.float64),
        "unaligned": shifted,
        "transposed": x.reshape(-1, 7).T,
        "Fortran": np.asfortranarray(x.reshape(7, -1)),
        "many axes": x.reshape(7, 1, -1, 2),
        "repeated": np.broadcast_to(x[:10], (50, 10)),
        "a list": x[:9].tolist(),
        "0-d": x[0],
        "0-d float64": np.array(float(x[1])),
        "no entry": x.reshape(-1, 7)[:, :0],
        **{f"times {m}": x[:999] * np.float32(m) for m in (0.0, 1e-45, 1e-38, 1e-20, 1e20, 1e32)},
    }


@each_scheme
def test_sources(scheme, agree, gaussian, chunk_of):
    chunk = chunk_of(scheme) * scheme.dimension
    with np.errstate(under="ignore"):
        views = _views(gaussian(14 * (chunk // 14 + 3)))
    for label, update in views.items():
        payload, _, _ = agree(scheme, update)
        assert payload[:4] == b"JoPQ", label


@each_scheme
def test_states(scheme, agree, gaussian, chunk_of, many_threads):
    rng = np.random.default_rng(5)
    whole = 2 * chunk_of(scheme) * scheme.dimension  # holds a chunk, wherever it begins
    state = {
        f"layer{i}": gaussian(size, seed=i) * np.float32(10.0 ** (i % 5 - 2)) + np.float32(0.1 * i)
        for i, size in enumerate([0, 1, 3, 64, 0, 1000, 65, whole, 9])
    }
    state["half"] = rng.normal(size=(3, 5)).astype(np.float16)
    state["double"] = rng.normal(size=(40, 50))
    state["turned"] = rng.normal(size=(40, 50)).astype(np.float32).T
    state["zero"] = np.zeros(77, np.float32)
    state["scalar"] = np.float32(0.25)
    state["steps"] = np.array(7)
    for scaling in SCALINGS[::3]:  # all of them, with any scheme: ``test_both_paths_agree``
        changed = replace(scheme, **scaling)
        agree(changed, state, threads=3, keyed=scheme.codec.has_dither)


@each_scheme
def test_many_callers_at_once(scheme, on, gaussian, many_threads):
    update, arguments = gaussian(70_000), {"seed": bytes(32)} if scheme.codec.has_dither else {}

    def code(_):
        noise = PrivateStream.reproducible(bytes(32))
        payload = scheme.encode(update, noise=noise, **arguments)
        return payload, scheme.decode(payload).tobytes()

    before = update.copy()
    with on(threads=2), ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(code, range(4)))) == 1
        fresh = {scheme.encode(update, **arguments) for _ in range(2)}
    assert len(fresh) == (1 if scheme.guarantee.epsilon == math.inf else 2)
    assert update.tobytes() == before.tobytes()


# Invalid entries

REFUSED = [
    np.array([1.0, np.nan, np.inf]),
    np.array([[1.0, 2.0], [3.0, -np.inf]], np.float32),
    np.array([np.nan], np.float16),
    np.array(np.nan, np.float32),
    np.array([0.0, 1e300]),
    np.full(5, 3e38),
    np.full(100_000, 2e34, np.float32),
    np.array([1, 2]),
    np.array([1j]),
]


@each_scheme
def test_updates_that_cannot_be_encoded_are_refused_alike(scheme, same_outcome, gaussian):
    for update in REFUSED:
        kind, _ = same_outcome(lambda u=update: scheme.encode(u, on_invalid="raise"))
        assert kind is jopeq.UpdateError
    for dtype in (np.float32, np.float64):
        late = gaussian(200_000).astype(dtype).reshape(2, -1)
        late[1, 99_998] = np.nan
        kind, message = same_outcome(lambda u=late: scheme.encode(u, on_invalid="raise"))
        assert kind is jopeq.UpdateError
        assert "nan at position (1, 99998)" in message


def test_points_too_far_are_refused_alike(same_outcome):
    scheme = jopeq.scheme("sdq", rate=1.5, lattice="A2", gamma=1.3, clip=1e-20)
    kind, message = same_outcome(lambda: scheme.encode(np.full(99, 1e10), seed=bytes(32)))
    assert kind is jopeq.UpdateError
    assert "too far" in message


@pytest.mark.parametrize("scheme", [s for s in SCHEMES if s.is_private], ids=lambda s: s.spec)
def test_invalid_entries_are_replaced_alike(scheme, agree, gaussian, chunk_of):
    whole = gaussian(chunk_of(scheme) * scheme.dimension + 99)
    whole[::1001] = np.nan
    state = {
        "fine": gaussian(70),
        "narrow": whole,
        "wide": np.array([1e300, -1e39, 0.1, 3e33, np.nan, -np.inf]),
        "half": np.array([np.inf, 0.5, -np.inf], np.float16),
        "long": np.array(["1e4000", "0.25"], np.longdouble),
        "alone": np.array(np.nan, np.float32),
    }
    before = {name: value.copy() for name, value in state.items()}
    for scaling in SCALINGS[::2]:
        changed = replace(scheme, **scaling)
        _, counted, _ = agree(changed, state)
        beyond = 8 if changed.clip is not None else 9  # 3e33 fits float32, but no norm's scale
        assert counted.invalid == np.isnan(whole).sum() + beyond
    for name, value in before.items():
        np.testing.assert_array_equal(state[name], value)


def test_decoding_raises_nothing_that_an_app_lets_numpy_raise(on):
    """Several scales, and numbers below float32's: the host scales these samples."""
    scheme = jopeq.scheme("sdq", rate=2.0, per="tensor")
    payload = scheme.encode({"a": np.full(5, 1e-44), "b": np.full(5, 1e-40)})
    with on(), np.errstate(all="raise"):
        scheme.decode(payload)
