"""Guarantees compose as they say, and say what they mean."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jopeq.privacy.accounting import OPTIMAL, optimal_epsilon
from jopeq.privacy.guarantee import Guarantee, digits_up, places_up

PLAIN = Guarantee(epsilon=4.0, nominal=4.0, is_exact=True)


@given(entries=st.integers(0, 10_000), size=st.integers(1, 9), delta=st.floats(0.0, 1e-3))
def test_a_started_sample_counts_whole(entries, size, delta):
    """And δ adds up to at most 1."""
    guarantee = Guarantee(epsilon=3.0, nominal=2.0, delta=delta, sample_size=size, is_exact=True)
    update, samples = guarantee.for_update(entries), -(-entries // size)
    assert (update.unit, update.sample_size) == ("update", size)
    assert (update.epsilon, update.nominal) == (3.0 * samples, 2.0 * samples)
    assert update.delta == pytest.approx(min(1.0, delta * samples))
    nothing = Guarantee(epsilon=math.inf, sample_size=size).for_client(entries, 5)
    assert nothing.epsilon == (math.inf if entries else 0.0)


def test_a_client_composes_its_updates_and_names_the_theorem():
    client = PLAIN.for_client(100, rounds=20)
    assert (client.epsilon, client.unit) == (4.0 * 100 * 20, "client")
    assert client.covers == ("100 samples", "20 rounds")
    assert PLAIN.for_update(100).for_client(100, 20) == client
    assert PLAIN.for_client(100, 0).epsilon == 0.0
    one = Guarantee(epsilon=0.02, nominal=0.02, is_exact=True)
    update = one.for_update(745750, delta=1e-5)
    assert update.covers == (f"745750 samples, by {OPTIMAL}",)
    assert update.epsilon == optimal_epsilon(0.02, 745750, 1e-5)
    assert (update.delta, update.unit, update.is_exact) == (1e-5, "update", False)
    client = one.for_client(7850, 5, delta=1e-5)
    assert client.covers == (f"7850 samples in each of 5 rounds, by {OPTIMAL}",)
    assert client.epsilon == optimal_epsilon(0.02, 5 * 7850, 1e-5)


@pytest.mark.parametrize(
    ("guarantee", "said"),
    [
        (PLAIN, "Protects  one sample of 1 entry: ε = 4\nAgainst   the server, who"),
        (Guarantee(epsilon=math.inf, nominal=4.0, assumptions=("all is sent",)), "no privacy for"),
        (Guarantee(epsilon=math.inf, nominal=4.0, assumptions=("all is sent",)), "Because   all"),
        (Guarantee(epsilon=1.0, assumptions=("a", "b")), "\nHolds if  a\n          b"),
        (Guarantee(epsilon=3.00001, delta=1.2341e-5), "ε ≤ 3.001, δ ≤ 1.24e-05"),  # rounded up
        (Guarantee(epsilon=5e-324, is_exact=True), "ε = 4.941e-324"),
        (PLAIN.for_update(7850), "one update: ε = 31,400"),
        (Guarantee(epsilon=1.0, delta=0.01).for_update(100), "no privacy"),
    ],
)
def test_the_sentence_says_what_holds(guarantee, said):
    assert said in str(guarantee)


def test_guarantees_are_values():
    for one in (PLAIN, Guarantee(epsilon=0.1).for_update(100, delta=1e-5)):
        again = pickle.loads(pickle.dumps(one))
        assert (again, hash(again), again.mechanisms) == (one, hash(one), one.mechanisms)
    with pytest.raises(AttributeError):
        PLAIN.epsilon = 1.0
    sent = Guarantee(epsilon=1.0, is_exact=True, assumptions=("the norm is sent in the clear",))
    assert not sent.for_update(80).is_exact  # a known norm keeps samples from being worst together
    assert PLAIN.for_update(80).is_exact


def test_composed_guarantees_remember_their_mechanisms():
    one = Guarantee(epsilon=0.02, sample_size=2)
    at_once = one.for_client(7849, 5, delta=1e-5).epsilon
    assert one.for_update(7849).for_client(7849, 5, delta=1e-5).epsilon == at_once
    assert one.for_update(7849, delta=1e-6).for_client(7849, 5, delta=1e-5).epsilon == at_once
    assert one.for_update(7849).for_client(7849, 5).epsilon == 0.02 * 3925 * 5


def test_no_privacy_and_no_samples():
    assert Guarantee(epsilon=math.inf).for_update(5, delta=1e-5).epsilon == math.inf
    empty = Guarantee(epsilon=math.inf, nominal=math.inf)
    for delta in (0.0, 1e-5):
        nothing = empty.for_update(0, delta)
        assert (nothing.epsilon, nothing.delta) == (0.0, 0.0)


@pytest.mark.parametrize(
    "parameters",
    [
        *({"epsilon": bad} for bad in (-1.0, math.nan, "4", None)),
        *({"epsilon": 1.0, "delta": bad} for bad in (-1e-9, 1.1, math.nan)),
        *({"epsilon": 1.0, "unit": "round"}, {"epsilon": 1.0, "adversary": "god"}),
        *({"epsilon": 1.0, "sample_size": bad} for bad in (0, 1.5)),
        {"epsilon": 1.0, "nominal": -1.0},
    ],
)
def test_guarantees_are_checked(parameters):
    with pytest.raises(ValueError, match=f"^{list(parameters)[-1]} must"):
        Guarantee(**parameters)


def test_counts_and_delta_are_checked():
    one = Guarantee(epsilon=1.0)
    for call in (
        lambda: one.for_update(-1),
        lambda: PLAIN.for_update(10).for_update(10),
        lambda: PLAIN.for_client(10, 2).for_client(10, 2),
        lambda: one.for_update(1.5),
        lambda: one.for_update(10, delta=1.0),
        lambda: one.for_update(10, delta=-0.1),
        lambda: one.for_client(10, -1),
        lambda: one.for_client(10, 2, delta=math.nan),
    ):
        with pytest.raises(ValueError, match=r"must|starts from one sample"):
            call()
    assert one.for_update(np.int64(10)).epsilon == 10.0


@given(value=st.floats(0.0, 1e9), places=st.integers(0, 4), digits=st.integers(2, 6))
def test_epsilons_are_rounded_up(value, places, digits):
    least = value * (1 - 2e-9)
    decimals = float(places_up(value, places).replace(",", ""))
    assert least <= decimals <= value + 10.0**-places
    shown = float(digits_up(value, digits).replace(",", ""))
    assert least <= shown <= value * (1 + 10.0 ** (1 - digits)) + 1e-300
