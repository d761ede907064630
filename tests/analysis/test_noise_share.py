"""Theorem III.3: the share is that of the scheme, and the server's ε what it leaves."""

import math

import pytest

from jopeq.analysis.exact import exact_epsilon
from jopeq.analysis.theory import BOUNDARY, coarseness, noise_share
from jopeq.schemes.quantized import JoPEQ


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0, 4.39, 4.41, 8.0])
@pytest.mark.parametrize("letters", [2, 3, 16])
def test_the_share_is_the_schemes(epsilon, letters):
    scheme = JoPEQ(epsilon=epsilon, rate=math.log2(letters))
    gamma = scheme.target.gamma(scheme.rate)
    share = float(noise_share(epsilon, letters, gamma))
    own = 0.0 if scheme.noise is None else scheme.noise.variance
    assert share == pytest.approx(own / scheme.target.noise.variance, abs=1e-12)
    in_region = float(coarseness(epsilon, letters, gamma)) >= BOUNDARY
    assert in_region == (scheme.noise is None)


@pytest.mark.parametrize(("epsilon", "letters"), [(2.0, 2), (4.0, 2), (4.0, 4), (6.0, 16)])
def test_the_servers_epsilon_is_the_one_asked_for_over_the_root_of_the_share(epsilon, letters):
    scheme = JoPEQ(epsilon=epsilon, rate=math.log2(letters))
    share = float(noise_share(epsilon, letters, scheme.target.gamma(scheme.rate)))
    assert exact_epsilon(scheme).server == pytest.approx(epsilon / math.sqrt(share), rel=1e-6)


def test_no_noise_is_no_privacy():
    scheme = JoPEQ(epsilon=6.0, rate=1.0)
    assert noise_share(6.0, 2, scheme.target.gamma(1.0)) == 0.0
    assert exact_epsilon(scheme).server == math.inf
