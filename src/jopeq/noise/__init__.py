"""The laws of the private noise: density, covariance, sampling, ε.

A law's ``epsilon(distance)`` is the ε of adding it to inputs that far apart (in the Euclidean
norm), and so of everything computed from the noisy value. Imports ``random`` and ``lattice``.
"""

from jopeq.noise.law import (
    DIAMETER,
    EuclideanLaplace,
    Gaussian,
    Laplace,
    Law,
    MultivariateT,
    add_noise,
    into_unit_ball,
    t_epsilon,
)

__all__ = [
    "DIAMETER",
    "EuclideanLaplace",
    "Gaussian",
    "Laplace",
    "Law",
    "MultivariateT",
    "add_noise",
    "into_unit_ball",
    "t_epsilon",
]
