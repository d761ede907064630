import numpy as np
import pytest

from jopeq.experiments.theory_slope import slope


@pytest.mark.parametrize("exponent", [-2.0, -1.0, 0.0, 0.5])
def test_a_power_law_has_its_exponent(exponent):
    x = [1.0, 2.0, 5.0, 400.0]
    assert slope(x, (7.0 * np.power(x, exponent)).tolist()) == pytest.approx(exponent, abs=1e-12)


def test_scatter_is_fitted_by_least_squares():
    # in logarithms: (0, 0), (1, 2), (2, 1), whose line has slope 1/2
    assert slope(np.exp([0, 1, 2]).tolist(), np.exp([0, 2, 1]).tolist()) == pytest.approx(0.5)
