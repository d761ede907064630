"""The laws of the private noise: density, characteristic function, covariance, sampling, ε.

Each law knows what it protects: ``epsilon(distance)`` is the largest log-ratio of its density
between two centres that far apart (in the Euclidean norm), which is the ε of adding it to inputs
of that diameter. By post-processing it bounds the ε of everything computed from the noisy value.
"""

from jopeq.noise.gaussian import Gaussian
from jopeq.noise.laplace import Laplace
from jopeq.noise.law import DIAMETER, Law, add_noise
from jopeq.noise.multivariate_t import MultivariateT, t_epsilon
from jopeq.noise.radial import RadialExponential

__all__ = [
    "DIAMETER",
    "Gaussian",
    "Laplace",
    "Law",
    "MultivariateT",
    "RadialExponential",
    "add_noise",
    "t_epsilon",
]
