"""The staircase scheme: choices, rates, guarantees and errors; its arithmetic is tested apart."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from jopeq import scheme
from jopeq.schemes import scheme_from_spec
from jopeq.schemes.staircase import Staircase

SEED = bytes(range(32))
TABLE = [(1, 1, 7.699), (2, 1, 1.782), (3, 1, 0.774), (4, 2, 0.445), (6, 2, 0.194), (8, 3, 0.108)]


def decoded(built, update, private, label="staircase"):
    payload = built.encode(update, seed=SEED, noise=private(label))
    return built.decode(payload).astype(np.float64)


@pytest.mark.parametrize(("epsilon", "moves", "variance"), TABLE)
def test_the_table_of_the_design(epsilon, moves, variance, private, assert_mean):
    built = scheme("staircase", epsilon=epsilon, clip=1.0)
    assert built.moves == moves
    assert built.distortion == pytest.approx(variance, abs=6e-4)
    assert built.distortion < scheme("laplace", epsilon=epsilon).distortion == 8 / epsilon**2
    update = np.random.default_rng(0).uniform(-1, 1, 200_000)
    assert_mean((decoded(built, update, private) - update) ** 2, built.distortion)
    assert built.distortion_for(1 / 3) == pytest.approx(built.distortion, rel=1e-3)


@pytest.mark.parametrize("lattice", ["Z", "A2", "D4", "E8"])
@pytest.mark.parametrize("epsilon", [0.5, 4.0, 8.0])
def test_the_guarantee(epsilon, lattice):
    built = scheme("staircase", epsilon=epsilon, lattice=lattice, moves=4, clip=1.0)
    guarantee = built.guarantee
    assert guarantee.nominal == epsilon
    assert (guarantee.unit, guarantee.adversary) == ("sample", "server")
    assert guarantee.sample_size == built.dimension
    assert len(guarantee.assumptions) == (built.dimension > 1)  # the sampler ends
    if lattice == "Z":
        assert guarantee.epsilon <= epsilon
        assert guarantee.epsilon == pytest.approx(epsilon, abs=1e-6)
        assert guarantee.is_exact
    else:
        assert guarantee.epsilon == epsilon  # the noise is drawn for a little less
        assert not guarantee.is_exact
    assert "norm" in scheme("staircase", epsilon=4.0).guarantee.assumptions[0]


@pytest.mark.parametrize("rate", [1.0, 1.6, 2.0, 3.0, 8.0])
def test_a_fixed_rate_keeps_to_its_letters_and_its_epsilon(rate, private):
    built = scheme("staircase", epsilon=3.0, rate=rate, clip=1.0)
    letters = math.floor(2**rate)
    assert built.coding == "fixed"
    assert 1 <= built.moves <= letters - 1
    assert built.bits_per_entry <= rate
    free = scheme("staircase", epsilon=3.0, moves=built.moves)
    assert built.guarantee.epsilon == free.guarantee.epsilon <= 3.0
    update = np.linspace(-1, 1, 30_000)
    payload, counted = built.encode(update, seed=SEED, noise=private("rate"), statistics=True)
    assert counted.bits_per_entry <= rate + 64 / len(update)  # the last word may be half empty
    assert counted.clipped == 0
    assert (counted.overloaded > 0) == (rate < 8)
    values = built.decode(payload)
    limit = built.core.step * (letters / 2)
    assert np.abs(values).max() <= limit + 1e-6


def test_clamping_pulls_inputs_towards_the_centre(private, assert_mean):
    built = scheme("staircase", epsilon=2.0, rate=2.0, clip=1.0)
    for x in (-1.0, 0.0, 1.0):
        error = decoded(built, np.full(50_000, x), private, f"bias {x}") - x
        assert_mean(error, built.core.bias(x))
    assert built.core.bias(1.0) < -0.1 < 0.1 < built.core.bias(-1.0)
    assert built.distortion == built.core.distortion(0.0)


@pytest.mark.parametrize(
    ("epsilon", "rate", "lattice"),
    [(4.0, 0.9, "Z"), (4.0, 1.67, "Z"), (4.0, 2.0, "Z"), (8.0, 3.0, "Z"), (4.0, 2.0, "A2")],
)
def test_entropy_coding_keeps_to_the_rate(epsilon, rate, lattice):
    built = scheme("staircase", epsilon=epsilon, rate=rate, coding="entropy", lattice=lattice)
    assert built.bits_per_entry <= rate
    free = scheme("staircase", epsilon=epsilon, lattice=lattice)
    assert built.distortion >= free.distortion
    assert built.moves <= free.moves
    # and the rate is used: the next finer cells would be too many bits, or no better
    finer = scheme("staircase", epsilon=epsilon, lattice=lattice, moves=built.moves + 1)
    assert finer.bits_per_entry > rate or finer.distortion > built.distortion


def test_moves_can_be_given():
    built = scheme("staircase", epsilon=4.0, moves=5)
    assert built.moves == 5
    assert built.distortion > scheme("staircase", epsilon=4.0).distortion
    assert built.coding == "entropy"


@pytest.mark.parametrize("parameters", [{}, {"rate": 2.0}, {"rate": 2.0, "coding": "entropy"}])
@pytest.mark.parametrize("lattice", ["Z", "A2"])
def test_a_scheme_survives_its_specification_and_pickle(lattice, parameters, private):
    built = scheme("staircase", epsilon=4.0, lattice=lattice, **parameters)
    again = scheme_from_spec(built.spec)
    assert again == built == pickle.loads(pickle.dumps(built))
    assert hash(again) == hash(built)
    update = np.random.default_rng(1).normal(size=501)
    payload = built.encode(update, seed=SEED, noise=private("spec"))
    np.testing.assert_array_equal(again.decode(payload), built.decode(payload))


@pytest.mark.parametrize("lattice", ["A2", "D4"])
def test_lattice_errors_are_those_of_the_closed_form(lattice, private, assert_mean):
    built = scheme("staircase", epsilon=6.0, lattice=lattice, clip=1.0, moves=6)
    update = np.random.default_rng(2).uniform(-0.5, 0.5, 40_000)
    error = decoded(built, update, private).reshape(-1, built.dimension) - update.reshape(
        -1, built.dimension
    )
    assert_mean(np.square(error).mean(axis=1), built.distortion)
    assert_mean(error, 0.0)


def test_lattice_choices_cover_the_ball():
    built = scheme("staircase", epsilon=4.0, lattice="A2", rate=2.0)
    assert built.bits_per_entry <= 2.0
    best = scheme("staircase", epsilon=4.0, lattice="A2")
    for chosen in range(1, 49, 6):
        other = scheme("staircase", epsilon=4.0, lattice="A2", moves=chosen)
        assert other.distortion >= best.distortion


def test_a_large_epsilon_takes_moves_whose_noise_can_be_drawn(private):
    built = scheme("staircase", epsilon=40.0, lattice="A2", clip=1.0)
    update = np.linspace(-0.7, 0.7, 1000)
    assert np.abs(decoded(built, update, private) - update).max() < 1.0
    # coarser cells, moves=1, would suit 8 letters too, but e⁻²⁴ is too rare to wait for
    assert scheme("staircase", epsilon=24.0, lattice="A2", rate=1.5).moves > 1
    assert scheme("staircase", epsilon=24.0, lattice="A2", rate=1.5, coding="entropy").moves > 1


@pytest.mark.parametrize("parameters", [{}, {"rate": 4.0}, {"rate": 64.0, "coding": "entropy"}])
@pytest.mark.parametrize("epsilon", [0.0003, 0.001])
def test_a_small_epsilon_takes_moves_whose_table_is_short_enough(epsilon, parameters):
    built = scheme("staircase", epsilon=epsilon, **parameters)
    assert built.guarantee.epsilon <= epsilon
    again = scheme("staircase", epsilon=epsilon, moves=1, **parameters)
    assert built.distortion <= again.distortion


def test_a_small_epsilon_is_served_on_lattices():
    assert scheme("staircase", epsilon=0.1, lattice="D4").distortion > 100


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_an_impossible_epsilon_is_refused(epsilon):
    with pytest.raises(ValueError, match="epsilon must be a positive"):
        Staircase(epsilon=epsilon)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"moves": 0}, "moves must be a whole number"),
        ({"moves": 1.5}, "moves must be a whole number"),
        ({"moves": True}, "moves must be a whole number"),
        ({"moves": 10**6}, "lower moves"),
        ({"moves": 10**400}, "lower moves"),
        ({"moves": 99, "lattice": "A2"}, "moves must be 1…48 on A2"),
        ({"coding": "huffman"}, "coding must be 'fixed' or 'entropy'"),
        ({"coding": "fixed"}, "needs rate"),
        ({"rate": 0.5}, "rate must be at least 1"),
        ({"rate": 0.5, "coding": "entropy"}, "too low.*0.83 bits.*raise rate"),
        ({"rate": 40.0}, "rate must be at most 32"),
        ({"rate": math.nan}, "rate must be a positive"),
        ({"lattice": ((1.0, 0.2), (0.0, 1.1))}, "built-in lattice"),
        ({"lattice": "Z9"}, "lattice must be one of"),
        ({"lattice": 10**400}, "lattice must be a name"),
        ({"clip": 0.0}, "clip must be a positive"),
        ({"epsilon": 40.0, "lattice": "A2", "moves": 1}, "too little noise"),
        ({"epsilon": 1e9, "lattice": "D4", "rate": 1.0}, "too little noise"),
    ],
)
def test_impossible_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        Staircase(**{"epsilon": 4.0, **parameters})
