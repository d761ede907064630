"""Any scheme, any shape, any type, any threads: the same bytes on both paths."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jopeq
from jopeq.errors import UpdateError

EPSILONS = st.sampled_from([0.1, 0.5, 1.7, 4.0, 20.0])
LETTERS = st.one_of(st.integers(2, 300), st.sampled_from([1000, 1024, 4096, 65535, 65536]))
LATTICES = {"Z": 65536, "A2": 5000, "D4": 3000, "E8": 400}


@st.composite
def schemes(draw):
    name = draw(st.sampled_from(
        ["sdq", "dq", "laplace", "t", "laplace+sdq", "t+sdq", "jopeq", "staircase", "response"]
    ))  # fmt: skip
    if name == "laplace":
        return jopeq.scheme(name, epsilon=draw(EPSILONS))
    if name == "t":
        return jopeq.scheme(
            name, epsilon=draw(EPSILONS), size=draw(st.sampled_from([1, 2, 4, 6, 8]))
        )
    if name == "response":
        levels = draw(st.integers(2, 60))
        rate = math.log2(levels)
        return jopeq.scheme(name, epsilon=draw(EPSILONS), rate=rate, levels=levels)
    lattice = draw(st.sampled_from([*LATTICES] if name != "staircase" else ["Z", "A2"]))
    size = {"Z": 1, "A2": 2, "D4": 4, "E8": 8}[lattice]
    rate = math.log2(min(draw(LETTERS), LATTICES[lattice])) / size
    if name == "staircase":
        return jopeq.scheme(
            name, epsilon=min(draw(EPSILONS), 4.0), rate=rate, lattice=lattice, moves=1
        )
    parameters = {"rate": rate, "lattice": lattice, "gamma": draw(st.sampled_from([0.5, 1.2, 4.0]))}
    if name not in ("sdq", "dq"):
        parameters["epsilon"] = draw(EPSILONS)
    return jopeq.scheme(name, **parameters)


@st.composite
def updates(draw):
    """A state of up to five tensors of any float type, orders of magnitude apart."""
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    state = {}
    for number in range(draw(st.integers(1, 5))):
        shape = draw(
            st.sampled_from([(), (0,), (1,), (7,), (3, 5), (64,), (2, 0, 3), (1000,), (41, 73)])
        )
        dtype = draw(st.sampled_from([np.float16, np.float32, np.float32, np.float64]))
        sigma = 10.0 ** draw(st.integers(-3, 2))
        values = np.asarray(rng.normal(draw(st.sampled_from([0.0, 0.3])), sigma, shape)).astype(
            dtype
        )
        state[f"tensor {number}"] = values.T if draw(st.booleans()) else values
    return state


SCALINGS = st.sampled_from([
    {}, {"clip": 0.05}, {"clip": 3.0}, {"center": True}, {"per": "tensor"}, {"spread": 1.0},
    {"per": "tensor", "center": True}, {"spread": 0.7, "center": True},
])  # fmt: skip


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(
    scheme=schemes(),
    scaling=SCALINGS,
    state=updates(),
    threads=st.integers(1, 4),
    keyed=st.booleans(),
    seed=st.integers(0, 9),
)
def test_both_paths_agree(scheme, scaling, state, threads, keyed, seed, agree):
    scheme = replace(scheme, **scaling)
    try:
        agree(
            scheme, state, threads=threads, keyed=keyed and scheme.is_seeded, label=f"noise {seed}"
        )
    except UpdateError:  # from the plain path, which comes first
        pytest.fail("nothing here is too large to be encoded")
