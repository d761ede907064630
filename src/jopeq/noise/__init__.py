"""The laws of the private noise: density, covariance, sampling, ε.

Each law knows what it protects: ``epsilon(distance)`` is the largest log-ratio of its density
between two centres that far apart (in the Euclidean norm), which is the ε of adding it to inputs
of that diameter. By post-processing it bounds the ε of everything computed from the noisy value.
Imports ``random`` and ``lattice``.
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
