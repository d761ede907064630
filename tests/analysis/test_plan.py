"""The table before training: complete, composed as guarantees compose, and as measured."""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np
import pytest

from jopeq import scheme
from jopeq.analysis.plan import PlanRow, plan, plan_row, plan_schemes
from jopeq.channel.response import best_response
from jopeq.random import samplers
from jopeq.random.streams import SharedStream
from jopeq.schemes.spread import normalised_error

DIMENSION, ROUNDS = 7850, 95
DRAWS = 1 << 18


@pytest.fixture(scope="module")
def rows():
    return plan(4.0, 2.0, dimension=DIMENSION, rounds=ROUNDS)


def row_of(rows, name, **parameters):
    wanted = scheme(name, epsilon=4.0, **parameters)
    (found,) = [row for row in rows if row.scheme == wanted]
    return found


# Complete


def test_every_scheme_is_there(rows):
    names = [row.scheme.name for row in rows]
    for name in (
        "none",
        "sdq",
        "laplace",
        "t",
        "l2",
        "gaussian",
        "laplace+sdq",
        "t+sdq",
        "l2+sdq",
        "jopeq",
        "mvu",
        "staircase",
        "response",
    ):
        assert name in names
    assert names.count("jopeq") == 4  # on Z, and three laws on A2
    assert names.count("staircase") == 3  # fixed and entropy-coded on Z, fixed on A2
    assert len({row.scheme for row in rows}) == len(rows)


def test_every_number_is_a_number(rows):
    for row in rows:
        for field in fields(PlanRow):
            value = getattr(row, field.name)
            if isinstance(value, float):
                assert not math.isnan(value), (row.scheme, field.name)
        for name in ("bits_per_entry", "distortion", "error", "bias"):
            assert math.isfinite(getattr(row, name))
        assert row.bits_per_entry > 0
        assert row.distortion >= 0
        assert row.error >= 0


def test_the_fixed_rate_is_kept(rows):
    for row in rows:
        if getattr(row.scheme, "rate", None) is not None:
            assert row.bits_per_entry <= 2.0 + 1e-9
            assert row.payload_bytes * 8 <= 2.0 * DIMENSION + 8 * 200
        else:
            assert row.bits_per_entry == 32.0


def test_the_bytes_are_those_of_a_payload(rows, private):
    update = samplers.normal(private("update"), 0, DIMENSION).astype(np.float32)
    for row in rows:
        length = len(row.scheme.encode(update))
        # an entropy coder's length depends on what it codes
        slack = 100 if getattr(row.scheme, "coding", "") == "entropy" else 0
        assert abs(row.payload_bytes - length) <= slack, row.scheme


@pytest.mark.parametrize("rate", [1.0, 1.5, 3.0])
@pytest.mark.parametrize("epsilon", [0.5, 6.0])
def test_other_rates_and_epsilons(epsilon, rate):
    built = list(plan_schemes(epsilon, rate))
    assert {each.name for each in built} >= {"none", "jopeq", "response", "staircase"}
    for each in built:
        if getattr(each, "rate", None) is not None:
            assert each.bits_per_entry <= rate + 1e-9


# ε


def test_epsilon_composes_as_the_guarantees_do(rows):
    for row in rows:
        guarantee = row.scheme.guarantee
        client = guarantee.for_client(DIMENSION, ROUNDS, delta=1e-5)
        assert row.nominal == guarantee.nominal
        assert row.per_sample == guarantee.epsilon
        delta = 1e-5 if guarantee.delta else 0.0
        assert row.per_update == guarantee.for_update(DIMENSION, delta).epsilon
        assert (row.per_client, row.delta) == (client.epsilon, client.delta)
        samples = math.ceil(DIMENSION / row.scheme.dimension)
        if not delta:
            assert row.per_update == pytest.approx(samples * row.per_sample)
        assert row.per_client <= ROUNDS * row.per_update


def test_a_sample_of_two_entries_composes_half_as_often(rows):
    assert row_of(rows, "t").per_update == pytest.approx(4.0 * DIMENSION / 2)
    assert row_of(rows, "laplace").per_update == pytest.approx(4.0 * DIMENSION)


def test_no_delta_no_advanced_composition():
    built = scheme("response", epsilon=0.01, rate=1.0)
    pure = plan_row(built, 100, 10, delta=0.0)
    approximate = plan_row(built, 100, 10, delta=1e-5)
    assert pure.per_client == pytest.approx(1000 * built.guarantee.epsilon)
    assert approximate.per_client < 0.5 * pure.per_client


# Error


def test_response_is_the_best_with_a_proof(rows):
    proven = [row for row in rows if row.per_sample <= 4.0 * (1 + 1e-6)]
    assert len(proven) >= 8
    assert min(proven, key=lambda row: row.error).scheme.name == "response"
    assert min(proven, key=lambda row: row.distortion).scheme.name == "response"


def test_the_published_distortions(rows):
    assert row_of(rows, "response", rate=2.0).distortion == pytest.approx(0.090, abs=5e-4)
    assert row_of(rows, "laplace").distortion == 0.5
    assert row_of(rows, "jopeq", rate=2.0).distortion == pytest.approx(0.50, abs=5e-3)
    separate = row_of(rows, "laplace+sdq", rate=2.0).distortion
    assert separate == pytest.approx(0.87, abs=5e-3)


def test_the_spread_is_the_best_and_the_error_is_its(rows):
    for row in rows:
        if row.spread is None:
            assert row.scheme.name == "none"
            continue
        assert row.error == normalised_error(row.scheme, row.spread, 10)
        for factor in (0.8, 1.25):
            assert row.error <= normalised_error(row.scheme, factor * row.spread, 10) * (1 + 1e-3)


def test_more_clients_less_error():
    built = scheme("response", epsilon=4.0, rate=2.0)
    alone, many = plan_row(built, 100, 1, clients=1), plan_row(built, 100, 1, clients=1000)
    assert many.error < 0.05 * alone.error
    assert many.spread > alone.spread  # noise averages out, clipping does not


def test_the_lower_bound_lies_below_and_the_gain_is_told():
    for rate in (1.0, 2.0, 3.0, 4.0):
        row = plan_row(scheme("response", epsilon=4.0, rate=rate), 100, 1)
        assert 0 < row.lower_bound <= row.gaussian_distortion
        simple = best_response(4.0, 2 ** int(rate), sigma=1 / 3).gaussian_distortion()
        assert row.gain == pytest.approx(max(0.0, 1 - row.gaussian_distortion / simple))
        assert (row.gain > 0.02) == (rate >= 3.0)
    assert row_without_bound("laplace") == (None, None, None)


def row_without_bound(name):
    row = plan_row(scheme(name, epsilon=4.0), 100, 1)
    return row.gaussian_distortion, row.lower_bound, row.gain


def test_the_gain_is_over_as_many_letters():
    """Five letters (2.5 bits) are compared with five, not with four."""
    row = plan_row(scheme("response", epsilon=4.0, rate=2.5, channel="randomized"), 100, 1)
    simple = best_response(4.0, 5, sigma=1 / 3).gaussian_distortion()
    assert row.gain == pytest.approx(max(0.0, 1 - row.gaussian_distortion / simple), abs=1e-12)


# Bias


@pytest.mark.parametrize(
    "unbiased",
    [
        scheme("none"),
        scheme("sdq", rate=2.0),
        scheme("sdq", rate=2.0, coding="entropy"),
        scheme("laplace", epsilon=4.0),
        scheme("t", epsilon=4.0),
        scheme("jopeq", epsilon=4.0, rate=2.0, coding="entropy"),
        scheme("mvu", epsilon=4.0, rate=2.0),
        scheme("staircase", epsilon=4.0),
        scheme("staircase", epsilon=1.0),
        scheme("response", epsilon=1.0, rate=1.0),
        scheme("response", epsilon=4.0, rate=3.0),
    ],
    ids=lambda value: value.spec,
)
def test_unbiased_schemes_have_bias_zero(unbiased, private, assert_mean):
    assert unbiased.bias() == 0.0
    assert_mean(errors_at_the_edge(unbiased, private), 0.0)


@pytest.mark.parametrize(
    "biased",
    [
        scheme("jopeq", epsilon=4.0, rate=1.0),
        scheme("jopeq", epsilon=1.0, rate=2.0),
        scheme("jopeq", epsilon=2.0, rate=math.log2(3)),
        scheme("laplace+sdq", epsilon=4.0, rate=2.0),
        scheme("laplace+sdq", epsilon=1.0, rate=1.0),
        scheme("staircase", epsilon=4.0, rate=1.0),
        scheme("staircase", epsilon=4.0, rate=2.0),
        scheme("staircase", epsilon=1.0, rate=3.0),
    ],
    ids=lambda value: value.spec,
)
def test_the_bias_of_clamping_is_the_measured_one(biased, private, assert_mean):
    bias = biased.bias()
    assert bias < -1e-3
    assert_mean(errors_at_the_edge(biased, private), bias)


def test_the_bias_on_a_lattice_is_the_measured_one(private):
    biased = scheme("t+sdq", epsilon=4.0, rate=2.0, lattice="A2")
    errors = errors_at_the_edge(biased, private)
    # both are means over draws: the plan's over 65,536
    uncertainty = errors.std() * math.sqrt(1 / len(errors) + 1 / 65536)
    assert abs(errors.mean() - biased.bias()) < 5 * uncertainty
    assert biased.bias() < -0.05


def test_dither_that_stays_in_is_biased_by_clamping_alone(private, assert_mean):
    built = scheme("dq", rate=2.0)
    assert_mean(errors_at_the_edge(built, private), built.bias())


def errors_at_the_edge(built, private):
    """decoded − x, outwards, for x at the edge of the ball."""
    edge = np.zeros((DRAWS, built.dimension))
    edge[:, 0] = 1.0
    shared = SharedStream(private("edge, dither").read(lane=0, start=0, count=32).tobytes())
    letters = built.to_letters(edge, 0, shared, private("edge, noise")).values
    return built.to_samples(letters, 0, shared)[:, 0] - 1.0


# Bad input


@pytest.mark.parametrize("name", ["dimension", "rounds", "clients"])
@pytest.mark.parametrize("value", [0, -3])
def test_counts_begin_at_one(name, value):
    counts = {"dimension": 10, name: value}
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got {value}"):
        plan(4.0, 2.0, **counts)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_impossible_epsilon(epsilon):
    with pytest.raises(ValueError, match=f"epsilon must be .* got {epsilon}"):
        plan(epsilon, 2.0, dimension=10)


@pytest.mark.parametrize("rate", [0.5, 0.0, -2.0, math.nan, math.inf, 100.0])
def test_impossible_rate(rate):
    with pytest.raises(ValueError, match=f"rate must be .* got {rate}"):
        plan(4.0, rate, dimension=10)


@pytest.mark.parametrize("delta", [-0.1, 1.0, math.nan])
def test_impossible_delta(delta):
    with pytest.raises(ValueError, match="delta must be"):
        plan(4.0, 2.0, dimension=10, delta=delta)


def test_fractions_of_entries():
    with pytest.raises(ValueError, match=r"dimension must be .* 2\.5"):
        plan(4.0, 2.0, dimension=2.5)
    with pytest.raises(ValueError, match=r"rounds must be .* 2\.5"):
        plan(4.0, 2.0, dimension=2, rounds=2.5)
    with pytest.raises(ValueError, match=r"clients must be .* 2\.5"):
        plan(4.0, 2.0, dimension=2, clients=2.5)


def test_a_channel_that_cannot_be_solved_is_left_out(monkeypatch):
    from jopeq.analysis import plan as module
    from jopeq.errors import DesignError
    from jopeq.schemes.channelled import MinimumVarianceUnbiased

    def unsolved(self):
        raise DesignError("the relaxation did not converge")

    monkeypatch.setattr(MinimumVarianceUnbiased, "guarantee", property(unsolved))
    names = [each.name for each in module.plan_schemes(4.0, 2.0)]
    assert "mvu" not in names
    assert names[-1] == "response"
