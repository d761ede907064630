"""Rényi composition against the optimum and dp-accounting."""

import math
from collections import Counter

import numpy as np
import pytest

from jopeq.privacy.accounting import optimal_epsilon, renyi_epsilon


@pytest.mark.parametrize("epsilon", [1e-5, 0.1, 3.0, 40.0, 700.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-3])
def test_renyi_never_beats_the_optimum(epsilon, delta):
    bound = renyi_epsilon(Counter({epsilon: 500}), delta)
    assert bound >= optimal_epsilon(epsilon, 500, delta) * (1 - 1e-9)


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
