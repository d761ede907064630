"""Composition against exact rational sums, hand formulas and dp-accounting."""

import math
import pickle
import subprocess
import sys
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from jopeq.privacy import Guarantee
from jopeq.privacy.accounting import (
    BASIC,
    OPTIMAL,
    RENYI,
    Composition,
    Mechanism,
    _binomial,
    optimal_delta,
    optimal_epsilon,
    renyi_epsilon,
    subsampled_epsilon,
)
from jopeq.privacy.gaussian import gaussian_epsilon

NEVER_BELOW = 1e-12


def rational_delta(odds: Fraction, times: int, total: Fraction) -> float:
    """δ at e^ε' = total of randomized response with e^ε = odds, without any rounding."""
    keep = odds / (1 + odds)
    result = Fraction(0)
    for flips in range(times + 1):
        ratio = odds ** (times - 2 * flips)
        if ratio > total:
            chance = math.comb(times, flips) * keep ** (times - flips) * (1 - keep) ** flips
            result += chance * (1 - total / ratio)
    return float(result)


# Pure mechanisms


@pytest.mark.parametrize(
    ("odds", "times", "total"),
    [
        (Fraction(2), 1, Fraction(3, 2)),
        (Fraction(3), 7, Fraction(10)),
        (Fraction(11, 10), 60, Fraction(5, 2)),
        (Fraction(60), 30, Fraction(10) ** 40),
        (Fraction(10001, 10000), 200, Fraction(1001, 1000)),
        (Fraction(2), 5, Fraction(1)),
    ],
)
def test_delta_is_the_rational_sum(odds, times, total):
    exact = rational_delta(odds, times, total)
    found = optimal_delta(math.log(odds), times, math.log(total))
    assert exact * (1 - NEVER_BELOW) <= found
    assert found == pytest.approx(exact, rel=5e-9)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.3, 4.0, 60.0, 31400.0])
@pytest.mark.parametrize("times", [1, 2, 17, 7850])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.3])
def test_epsilon_inverts_delta(epsilon, times, delta):
    found = optimal_epsilon(epsilon, times, delta)
    assert 0.0 <= found <= epsilon * times
    if found < epsilon * times:
        assert optimal_delta(epsilon, times, found) <= delta
    less = found - max(1e-9 * found, 1e-9 * epsilon)
    if less > 0.0 and found < 1e5:  # beyond, one rounding of ε' moves δ by more
        assert optimal_delta(epsilon, times, less) > delta * (1 - 1e-6)


def test_one_mechanism_by_hand():
    keep = 1 / (1 + math.exp(-2.0))
    by_hand = math.log((keep - 1e-3) / (1 - keep))
    assert optimal_epsilon(2.0, 1, 1e-3) == pytest.approx(by_hand, rel=1e-9)


def test_nothing_and_everything():
    assert optimal_epsilon(1.0, 0, 1e-5) == 0.0
    assert optimal_epsilon(0.0, 9, 1e-5) == 0.0
    assert optimal_epsilon(1.0, 9, 1e-300) == 9.0  # below what sums resolve: basic composition
    assert optimal_epsilon(1e-8, 10, 1e-3) == 0.0  # δ(0) is below 10⁻³ already
    assert optimal_delta(1.0, 3, 3.0) == 0.0


def test_probabilities_hold_twelve_digits_at_any_size():
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(40):
        for n, flip in [(50, 0.3), (10**6, 1e-7), (10**6, 0.3), (10**9, 0.018), (10**9, 0.5)]:
            mean = n * flip
            spots = np.round(mean + math.sqrt(mean) * np.array([-30, -5, 0, 0.1, 7, 30]))
            spots = np.unique(np.clip(np.append(spots, [0, 1, 15, 16, 17]), 0, n))
            for j, found in zip(spots.tolist(), _binomial(spots, n, flip).tolist(), strict=True):
                exact = (
                    mpmath.loggamma(n + 1)
                    - mpmath.loggamma(j + 1)
                    - mpmath.loggamma(n - j + 1)
                    + j * mpmath.log(flip)
                    + (n - j) * mpmath.log(1 - mpmath.mpf(flip))
                )
                if exact > -650:
                    assert found == pytest.approx(float(mpmath.exp(exact)), rel=1e-10)


@pytest.mark.parametrize(
    ("epsilon", "times"), [(0.01, 10**9), (4.0, 10**9), (1e-4, 10**8), (4.0, 745750)]
)
def test_large_compositions_obey_the_central_limit(epsilon, times):
    """L has mean nε·tanh(ε/2) and standard deviation ε√n/cosh(ε/2)."""
    found = optimal_epsilon(epsilon, times, 1e-6)
    mean = times * epsilon * math.tanh(epsilon / 2)
    deviation = epsilon * math.sqrt(times) / math.cosh(epsilon / 2)
    assert mean + 2 * deviation < found < mean + 5 * deviation
    bound = renyi_epsilon(Counter({epsilon: times}), 1e-6)
    assert found <= bound < mean + 5.7 * deviation


def test_beyond_what_can_be_summed_renyi_bounds():
    assert optimal_epsilon(0.01, 10**12, 1e-6) is None
    epsilon, theorem = Composition.of(Mechanism(0.01), 10**12).epsilon_at(1e-6)
    assert theorem == RENYI
    mean, deviation = 10**12 * 0.01 * math.tanh(0.005), 0.01 * 10**6
    assert mean + 4 * deviation < epsilon < mean + 6 * deviation


@pytest.mark.parametrize("epsilon", [1e-5, 0.1, 3.0, 40.0, 700.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-3])
def test_renyi_never_beats_the_optimum(epsilon, delta):
    bound = renyi_epsilon(Counter({epsilon: 500}), delta)
    assert bound >= optimal_epsilon(epsilon, 500, delta) * (1 - 1e-9)


# Against dp-accounting


@pytest.mark.parametrize(("epsilon", "times", "delta"), [(0.5, 40, 1e-5), (2.0, 100, 1e-3)])
def test_optimum_equals_the_privacy_loss_distribution(epsilon, times, delta):
    pytest.importorskip("dp_accounting")
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    parameters = common.DifferentialPrivacyParameters(epsilon, 0.0)
    law = pld.from_privacy_parameters(parameters, value_discretization_interval=epsilon)
    theirs = law.self_compose(times).get_epsilon_for_delta(delta)
    assert optimal_epsilon(epsilon, times, delta) == pytest.approx(theirs, rel=1e-6)

    flip = 1 / (1 + math.exp(epsilon))
    law = pld.from_randomized_response(2 * flip, 2, value_discretization_interval=epsilon / 64)
    theirs = law.self_compose(times).get_epsilon_for_delta(delta)
    assert optimal_epsilon(epsilon, times, delta) == pytest.approx(theirs, rel=2e-2)


def test_failures_compose_as_the_privacy_loss_distribution():
    pytest.importorskip("dp_accounting")
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    parameters = common.DifferentialPrivacyParameters(0.5, 1e-7)
    law = pld.from_privacy_parameters(parameters, value_discretization_interval=0.5)
    theirs = law.self_compose(40).get_epsilon_for_delta(1e-5)
    ours, theorem = Composition.of(Mechanism(0.5, 1e-7), 40).epsilon_at(1e-5)
    assert ours == pytest.approx(theirs, rel=1e-6)
    assert theorem == OPTIMAL


def test_mixtures_lie_between_the_optimum_and_basic_composition():
    pytest.importorskip("dp_accounting")
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    def law(epsilon, times):
        parameters = common.DifferentialPrivacyParameters(epsilon, 0.0)
        one = pld.from_privacy_parameters(parameters, value_discretization_interval=0.125)
        return one.self_compose(times)

    for first, second in [((0.5, 60), (0.25, 60)), ((0.5, 60), (0.125, 2)), ((1.0, 2), (0.5, 90))]:
        best = law(*first).compose(law(*second)).get_epsilon_for_delta(1e-5)
        both = Composition.of(Mechanism(first[0]), first[1])
        both += Composition.of(Mechanism(second[0]), second[1])
        found, _ = both.epsilon_at(1e-5)
        assert best * (1 - 1e-9) <= found <= 1.1 * best < both.basic()[0]


def test_renyi_equals_their_accountant():
    dp = pytest.importorskip("dp_accounting")
    relation = dp.NeighboringRelation.REPLACE_ONE
    orders = 1 + np.exp(np.linspace(-3, 5, 2000))
    accountant = dp.rdp.RdpAccountant(orders, neighboring_relation=relation)
    for epsilon, times in [(0.1, 200), (0.4, 30)]:
        flip = 1 / (1 + math.exp(epsilon))
        accountant.compose(dp.RandomizedResponseDpEvent(2 * flip, 2), times)
    ours = renyi_epsilon(Counter({0.1: 200, 0.4: 30}), 1e-5)
    assert ours == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-5)


def test_renyi_of_a_gaussian_equals_their_accountant():
    dp = pytest.importorskip("dp_accounting")
    accountant = dp.rdp.RdpAccountant(1 + np.exp(np.linspace(-3, 5, 2000)))
    accountant.compose(dp.GaussianDpEvent(1.25), 4)
    ours = renyi_epsilon(Counter(), 1e-5, mu=2 / 1.25)
    assert ours == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-5)


# Compositions


def test_counts_add_up():
    one, two = Mechanism(0.5), Mechanism(1.0, 1e-6)
    both = (Composition.of(one, 3) + Composition.of(two) + Composition.of(one)).times(2)
    assert dict(both.counts) == {one: 8, two: 2}
    assert both.basic() == (6.0, 2e-6)
    assert Composition.of(one, 3).times(0) == Composition() == Composition.of(one, 0)
    assert Composition().epsilon_at(1e-5) == (0.0, BASIC)


def test_failures_beyond_delta_leave_no_privacy():
    many = Composition.of(Mechanism(0.5, 1e-6), 100)
    assert many.epsilon_at(1e-5)[0] == math.inf
    assert many.epsilon_at(0.0)[0] == math.inf
    assert many.epsilon_at(1.0001e-4)[0] < 50.0
    assert Composition.of(Mechanism(math.inf)).epsilon_at(0.1)[0] == math.inf


def test_a_gaussian_beside_a_pure_mechanism():
    gaussian = Mechanism(math.inf, 0.0, 0.5)  # ε at δ = 0 is infinite, μ tells all the same
    alone = Composition.of(gaussian, 4)
    assert alone.epsilon_at(1e-5)[0] == pytest.approx(gaussian_epsilon(1.0, 1e-5), rel=1e-9)
    bit = alone + Composition.of(Mechanism(0.1))
    assert (
        gaussian_epsilon(1.0, 1e-5) < bit.epsilon_at(1e-5)[0] <= gaussian_epsilon(1, 1e-5) + 0.1001
    )
    many = alone + Composition.of(Mechanism(0.1), 400)
    assert many.epsilon_at(1e-5)[0] < 0.5 * (gaussian_epsilon(1.0, 1e-5) + 40.0)


# Guarantees


def test_the_theorem_is_named():
    one = Guarantee(epsilon=0.02, nominal=0.02, is_exact=True)
    update = one.for_update(745750, delta=1e-5)
    assert update.assumptions == (f"745750 samples composed by {OPTIMAL}",)
    assert update.epsilon == optimal_epsilon(0.02, 745750, 1e-5) == update.nominal
    assert (update.delta, update.unit, update.is_exact) == (1e-5, "update", False)
    client = one.for_client(7850, 5, delta=1e-5)
    assert client.assumptions == (f"7850 samples in each of 5 rounds composed by {OPTIMAL}",)
    assert client.epsilon == optimal_epsilon(0.02, 5 * 7850, 1e-5)


def test_composed_guarantees_remember_their_mechanisms():
    one = Guarantee(epsilon=0.02, sample_size=2)
    at_once = one.for_client(7849, 5, delta=1e-5).epsilon
    assert one.for_update(7849).for_client(7849, 5, delta=1e-5).epsilon == at_once
    assert one.for_update(7849, delta=1e-6).for_client(7849, 5, delta=1e-5).epsilon == at_once
    assert one.for_update(7849).for_client(7849, 5).epsilon == 0.02 * 3925 * 5


def test_the_nominal_epsilon_composes_likewise():
    update = Guarantee(epsilon=0.04, nominal=0.02).for_update(1000, delta=1e-5)
    assert update.nominal == optimal_epsilon(0.02, 1000, 1e-5)
    assert update.epsilon == optimal_epsilon(0.04, 1000, 1e-5)


def test_no_privacy_and_no_samples():
    assert Guarantee(epsilon=math.inf).for_update(5, delta=1e-5).epsilon == math.inf
    empty = Guarantee(epsilon=math.inf, nominal=math.inf, gaussian_mu=math.inf)
    for delta in (0.0, 1e-5):
        nothing = empty.for_update(0, delta)
        assert (nothing.epsilon, nothing.delta, nothing.gaussian_mu) == (0.0, 0.0, 0.0)
    assert "No privacy" in str(Guarantee(epsilon=1.0, delta=0.01).for_update(100))


def test_gaussian_guarantees_compose_by_mu():
    one = Guarantee(
        epsilon=gaussian_epsilon(0.01, 1e-6), delta=1e-6, gaussian_mu=0.01, is_exact=True
    )
    update = one.for_update(100)
    assert (update.epsilon, update.delta) == (100 * one.epsilon, pytest.approx(1e-4))
    assert update.gaussian_mu == pytest.approx(0.1)
    assert not update.is_exact
    client = one.for_client(100, 25, delta=1e-6)
    assert client.epsilon == pytest.approx(gaussian_epsilon(0.5, 1e-6), rel=1e-9)
    assert client.gaussian_mu == pytest.approx(0.5)
    assert client.is_exact
    assert "Balle, Wang 2018" in str(client)


def test_together():
    update = Guarantee(
        epsilon=4.0, nominal=3.0, unit="update", is_exact=True, assumptions=("clipped", "a")
    )
    bit = Guarantee(epsilon=0.5, delta=1e-6, unit="update", assumptions=("a", "b"))
    both = update.together_with(bit)
    assert (both.epsilon, both.nominal, both.delta) == (4.5, 3.0, 1e-6)
    assert both.assumptions == ("clipped", "a", "b")
    assert not both.is_exact
    assert both.together_with(update).nominal == 6.0
    parts = dict(both.mechanisms.counts)
    assert parts == {Mechanism(4.0): 1, Mechanism(0.5, 1e-6): 1}
    assert both.for_client(1, 10, delta=1e-3).epsilon < 45.0
    one = Guarantee(epsilon=1.0, delta=0.1, gaussian_mu=3.0)
    assert one.together_with(one).gaussian_mu == pytest.approx(3 * math.sqrt(2))
    assert one.together_with(Guarantee(epsilon=1.0)).gaussian_mu is None


@pytest.mark.parametrize(
    "other",
    [
        Guarantee(epsilon=1.0, unit="update"),
        Guarantee(epsilon=1.0, adversary="network"),
        Guarantee(epsilon=1.0, sample_size=2),
    ],
)
def test_together_needs_the_same_unit_and_adversary(other):
    with pytest.raises(ValueError, match="same"):
        Guarantee(epsilon=1.0).together_with(other)


@pytest.mark.parametrize("epsilon", [1e-12, 0.3, 1.0, 20.0, 31400.0])
@pytest.mark.parametrize("probability", [1e-9, 0.01, 0.5, 1.0])
def test_amplification_formula(epsilon, probability):
    found = subsampled_epsilon(epsilon, probability)
    assert found <= epsilon
    if epsilon <= 20.0:
        exact = math.log1p(probability * math.expm1(epsilon))
        assert found == pytest.approx(exact, rel=1e-12, abs=2e-16)
    else:
        assert found == pytest.approx(epsilon + math.log(probability), rel=1e-12)


def test_amplification_is_attained_by_randomized_response_with_a_stand_in():
    """The exact law of one bit: drawn with q, else randomized response of 0 in its place."""
    keep, q = 1 / (1 + math.exp(-2.0)), 0.1
    drawn, absent = np.array([1 - keep, keep]), np.array([keep, 1 - keep])
    one, zero = q * drawn + (1 - q) * absent, absent
    worst = max(np.log(one / zero).max(), np.log(zero / one).max())
    assert worst == pytest.approx(subsampled_epsilon(2.0, q), rel=1e-12)


def test_subsampled():
    update = Guarantee(epsilon=2.0, nominal=2.0, delta=1e-4, unit="update", is_exact=True)
    amplified = update.subsampled(0.1, adversary="model")
    assert amplified.epsilon == subsampled_epsilon(2.0, 0.1) == amplified.nominal
    assert amplified.delta == pytest.approx(1e-5)
    assert amplified.adversary == "model"
    assert not amplified.is_exact
    assert "who does not learn who took part" in str(amplified)
    assert "zero update standing in" in str(amplified)
    assert amplified.for_client(1, 3).epsilon == pytest.approx(3 * amplified.epsilon)
    assert update.subsampled(0.0, adversary="model").epsilon == 0.0
    nothing = Guarantee(epsilon=math.inf, unit="update").subsampled(0.1, adversary="model")
    assert nothing.epsilon == math.inf


@pytest.mark.parametrize(
    ("guarantee", "probability", "adversary", "reason"),
    [
        ({"unit": "update"}, 0.1, "server", "sees which clients send"),
        ({"unit": "update"}, 0.1, "network", "sees which clients send"),
        ({"unit": "update"}, 0.1, "decoded", "sees which clients send"),
        ({"unit": "update"}, 0.1, "nobody", "adversary must be one of"),
        ({"unit": "sample"}, 0.1, "model", "starts from one update"),
        ({"unit": "client"}, 0.1, "model", "starts from one update"),
        ({"unit": "update", "adversary": "network"}, 0.1, "model", "against 'network'"),
        ({"unit": "update", "adversary": "model"}, 0.1, "model", "against 'model'"),
        ({"unit": "update"}, 1.1, "model", "probability"),
        ({"unit": "update"}, math.nan, "model", "probability"),
    ],
)
def test_subsampling_is_refused_where_it_does_not_apply(guarantee, probability, adversary, reason):
    with pytest.raises(ValueError, match=reason):
        Guarantee(epsilon=1.0, **guarantee).subsampled(probability, adversary=adversary)
    with pytest.raises(TypeError, match="adversary"):
        Guarantee(epsilon=1.0, **guarantee).subsampled(probability)


@pytest.mark.parametrize(
    "parameters",
    [
        {"epsilon": -1.0},
        {"epsilon": math.nan},
        {"epsilon": "4"},
        {"epsilon": None},
        {"epsilon": 1.0, "nominal": -1.0},
        {"epsilon": 1.0, "delta": -1e-9},
        {"epsilon": 1.0, "delta": 1.1},
        {"epsilon": 1.0, "delta": math.nan},
        {"epsilon": 1.0, "unit": "round"},
        {"epsilon": 1.0, "adversary": "god"},
        {"epsilon": 1.0, "sample_size": 0},
        {"epsilon": 1.0, "sample_size": 1.5},
        {"epsilon": 1.0, "gaussian_mu": -1.0},
    ],
)
def test_guarantees_are_checked(parameters):
    with pytest.raises(ValueError, match=f"^{list(parameters)[-1]} must"):
        Guarantee(**parameters)


def test_counts_and_delta_are_checked():
    one = Guarantee(epsilon=1.0)
    for call in (
        lambda: one.for_update(-1),
        lambda: one.for_update(1.5),
        lambda: one.for_update(10, delta=1.0),
        lambda: one.for_update(10, delta=-0.1),
        lambda: one.for_client(10, -1),
        lambda: one.for_client(10, 2, delta=math.nan),
    ):
        with pytest.raises(ValueError, match="must"):
            call()
    assert one.for_update(np.int64(10)).epsilon == 10.0


def test_guarantees_travel():
    update = Guarantee(epsilon=0.1).for_update(100, delta=1e-5)
    again = pickle.loads(pickle.dumps(update))
    assert again == update
    assert hash(again) == hash(update)
    assert again.mechanisms == update.mechanisms


def test_composing_needs_no_dp_accounting():
    code = (
        "import sys; sys.modules['dp_accounting'] = None; from jopeq.privacy import Guarantee; "
        "Guarantee(epsilon=0.1).for_client(100, 5, delta=1e-5)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
