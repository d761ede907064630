import math

import pytest


def test_the_region_of_no_noise_is_the_region_of_no_privacy(parts):
    part = parts["noise_share"]
    for shares, exacts, coarse in zip(
        part["share"], part["exact"], part["coarseness"], strict=True
    ):
        for share, exact, level, epsilon in zip(
            shares, exacts, coarse, part["epsilons"], strict=True
        ):
            assert (exact is None) == (level >= part["boundary"])
            if exact is not None:
                assert exact == pytest.approx(epsilon / math.sqrt(share), rel=1e-5)  # six digits
