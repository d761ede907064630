"""The bounds of the paper's theorems, and the distance of the total error from its target law.

On A2 (Theorem III.1) the density of n + u at x is P(n ∈ x − P0)/|P0|: the probability of a hexagon
under a t law centred at the origin. It is a sum of one-dimensional integrals, one an edge:

    P(n ∈ polygon) = Σ over edges of ±(1/2π)·∫ G(r(θ)) dθ
    G(r) = P(‖n‖ ≤ r) = 1 − (1 + r²/νs²)^{−ν/2}
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jopeq.entries.quantized import JoPEQ
from jopeq.lattice.lattices import Lattice
from jopeq.noise import Laplace, MultivariateT

# The bound on F(w_t) − F* of local SGD with JoPEQ (Theorem III.5): as printed, and as proven

FORMS = ("printed", "proof", "corrected")


@dataclass(frozen=True, kw_only=True)
class ConvergenceBound:
    """The constants of Theorem III.5; σ² = 0 is federated averaging without JoPEQ.

    >>> bound = ConvergenceBound(
    ...     tau=5, convexity=0.5, smoothness=5.0, gap=0.0, variance=0.0,
    ...     weights=(0.5, 0.5), gradient_bounds=(1.0, 1.0), start=1.0)
    >>> bound.phi, float(bound.step_size(0)), bound.b
    (200.0, 0.05, 128.5)
    """

    tau: int
    convexity: float  # ρ_c
    smoothness: float  # ρ_s
    gap: float  # ψ, the heterogeneity gap
    variance: float  # σ² of the mechanism on one sample
    weights: tuple[float, ...]  # α_k
    gradient_bounds: tuple[float, ...]  # ξ_k²
    start: float  # ‖w_0 − w*‖²

    @property
    def phi(self) -> float:
        """φ = τ·max(1, 4ρ_s/ρ_c)."""
        return self.tau * max(1.0, 4.0 * self.smoothness / self.convexity)

    def step_size(self, t: ArrayLike) -> NDArray[np.float64]:
        """η_t = τ/(ρ_c(t + φ))."""
        return np.asarray(self.tau / (self.convexity * (np.asarray(t) + self.phi)))

    @property
    def lemmas(self) -> NDArray[np.float64]:
        """The bounds of Lemmas C.1 and C.2 over η_t²: (1 + 36τ²σ²)·Σα²ξ² and 4(τ−1)²·Σαξ²."""
        alpha, xi = np.array(self.weights), np.array(self.gradient_bounds)
        noise = (1.0 + 36.0 * self.tau**2 * self.variance) * float(alpha**2 @ xi)
        return np.array([noise, 4.0 * (self.tau - 1) ** 2 * float(alpha @ xi)])

    @property
    def b(self) -> float:
        """(1 + 36τ²σ²)·Σα²ξ² + 6ρ_sψ + 8(τ−1)²·Σαξ²."""
        noise, drift = self.lemmas.tolist()
        return float(noise + 6.0 * self.smoothness * self.gap + 2.0 * drift)

    def constant(self, form: str = "corrected") -> float:
        """λ, in one of ``FORMS``."""
        tau, rho = self.tau, self.convexity
        noise = {
            "printed": (rho**2 + tau**2 * self.b) / (tau * rho),
            "proof": (rho**2 + tau**2 * self.b) / (tau * rho**2),
            "corrected": tau**2 * self.b / (rho**2 * (tau - 1)) if tau > 1 else math.inf,
        }
        return max(noise[form], self.phi * self.start)

    def at(self, t: ArrayLike, form: str = "corrected") -> NDArray[np.float64]:
        """The bound on E F(w_t) − F*: ρ_s·λ/(2(t + φ))."""
        top = 0.5 * self.smoothness * self.constant(form)
        return np.asarray(top / (np.asarray(t, dtype=float) + self.phi))

    def recursion(self, steps: int) -> Iterator[float]:
        """(t + φ)·δ_t for t = 0, 1, …, if the recursion holds with equality; λ must exceed them."""
        delta, b = self.start, self.b
        for t in range(steps):
            yield (t + self.phi) * delta
            eta = float(self.step_size(t))
            delta = (1.0 - eta * self.convexity) * delta + eta * eta * b


# The law of noise plus dither on Z, and its distance from the target law (Theorem III.2)

Array = NDArray[np.float64]
_GRID = 4001
_REACH = 60.0  # scales: a Laplace law has e⁻⁶⁰ of its mass beyond


@dataclass(frozen=True)
class Distance:
    """Two distances of two laws: sup|F − G| and ½∫|f − g|."""

    kolmogorov: float
    total_variation: float


@dataclass(frozen=True)
class DitheredLaplace:
    """n + u with n Laplace of scale b (or n = 0) and u uniform on (−Δ/2, Δ/2).

    >>> float(DitheredLaplace(Laplace(0.5), step=1.0).distribution(0.0))
    0.5
    """

    noise: Laplace | None
    step: float

    def distribution(self, x: ArrayLike) -> Array:
        """(1/Δ)·∫ F_n over (x − Δ/2, x + Δ/2)."""
        z = np.asarray(x, dtype=np.float64)
        half = 0.5 * self.step
        return (self._integral(z + half) - self._integral(z - half)) / self.step

    def density(self, x: ArrayLike) -> Array:
        """(F_n(x + Δ/2) − F_n(x − Δ/2))/Δ, from the left tail so that nothing cancels."""
        z = -np.abs(np.asarray(x, dtype=np.float64))
        half = 0.5 * self.step
        if self.noise is None:
            return np.where(z >= -half, 1.0 / self.step, 0.0)
        inner = self.noise.distribution(z + half) - self.noise.distribution(z - half)
        return np.asarray(inner / self.step)

    def _integral(self, x: Array) -> Array:
        """∫ F_n up to x: max(x, 0) + (b/2)·e^{−|x|/b}."""
        ramp = np.maximum(x, 0.0)
        if self.noise is None:
            return ramp
        scale = self.noise.scale
        return np.asarray(ramp + 0.5 * scale * np.exp(-np.abs(x) / scale))


def scalar_distance(scheme: JoPEQ) -> Distance:
    """The distance of a scalar JoPEQ scheme's total error from its Laplace target, no overload.

    Between two crossings of the densities their difference keeps its sign. The integral of the
    absolute difference is therefore a sum of differences of the distribution functions, and these
    differ most at a crossing. The density of the total error jumps at half a step.

    >>> found = scalar_distance(JoPEQ(epsilon=4.0, rate=1.0))
    >>> round(found.kolmogorov, 3), round(found.total_variation, 3)
    (0.099, 0.237)
    """
    from scipy import optimize

    one, two = total_error(scheme), scheme.target.noise
    reach, kink = _REACH * two.scale + scheme.cells.step, 0.5 * scheme.cells.step

    def gap(x: float) -> float:
        return float(np.subtract(one.density(x), two.density(x)).item())

    # closer together near 0, where densities cross; both sides of the jump
    grid = reach * np.linspace(0.0, 1.0, _GRID) ** 2
    jumps = [float(np.nextafter(kink, side)) for side in (0.0, math.inf)]
    points = np.unique(np.concatenate((grid, jumps)))
    signs = np.sign(one.density(points) - two.density(points))
    places = np.flatnonzero(signs[1:] * signs[:-1] < 0)
    crossings = [optimize.brentq(gap, points[i], points[i + 1], xtol=1e-14) for i in places]
    edges = np.array([0.0, *crossings, reach])
    ahead = one.distribution(edges) - two.distribution(edges)
    ahead[0], ahead[-1] = 0.0, 0.0  # ½ and 1, whatever rounding makes of them
    return Distance(float(np.abs(ahead).max()), float(np.abs(np.diff(ahead)).sum()))


def total_error(scheme: JoPEQ) -> DitheredLaplace:
    """The law of noise plus dither of a scalar scheme with Laplace noise."""
    return DitheredLaplace(scheme.noise, scheme.cells.step)


def overload_chance(scheme: JoPEQ, x: float) -> float:
    """P(|x + n + d| > γ) of a scalar scheme at a fixed rate: the theorems want it to vanish."""
    law = total_error(scheme)
    gamma = 0.5 * scheme.cells.step * scheme.codebook.letters
    below, above = law.distribution(-gamma - x), law.distribution(-gamma + x)
    return float(below + above)


# The law of noise plus dither on A2, and its distance from the multivariate t (Theorem III.1)

_RINGS, _ANGLES, _NODES = 600, 8, 48


@dataclass(frozen=True)
class PlaneDistance(Distance):
    """Distance of two laws in the plane; ``kolmogorov`` compares the norms ‖n + u‖ and ‖target‖.

    ``defect`` is |∫f − 1| of the computed density f: the mass that the quadrature misses.
    """

    defect: float


def hexagon(step: float) -> Array:
    """The corners of the Voronoi cell of A2 with shortest vector ``step``, anticlockwise."""
    angles = math.pi / 6 + math.pi / 3 * np.arange(6)
    return step / math.sqrt(3) * np.stack((np.cos(angles), np.sin(angles)), axis=1)


def radial_distribution(law: MultivariateT, r: Array) -> Array:
    """P(‖n‖ ≤ r) of an isotropic t law in the plane."""
    return np.asarray(-np.expm1(-0.5 * law.nu * np.log1p(r * r / (law.nu * law.squared_scale))))


def radius_at(law: MultivariateT, chance: Array) -> Array:
    """The r with P(‖n‖ ≤ r) = chance."""
    growth = np.expm1(-2.0 / law.nu * np.log1p(-chance))
    return np.asarray(np.sqrt(law.nu * law.squared_scale * growth))


def dithered_density(noise: MultivariateT | None, step: float, points: Array) -> Array:
    """The density of n + u at each row of ``points``, u uniform on the cell of A2."""
    corners = hexagon(step)
    volume = Lattice("A2", step=step).cell_volume
    chance = np.zeros(len(points))
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    is_inside = np.ones(len(points), dtype=bool)
    for start, end in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        along = (end - start) / np.linalg.norm(end - start)
        first, last = (start - points) @ along, (end - points) @ along
        offset = start - points
        height = offset[:, 0] * along[1] - offset[:, 1] * along[0]  # signed distance to the edge
        is_inside &= height >= 0
        if noise is None:
            continue
        near = np.maximum(np.abs(height), 1e-300)
        low, high = np.arctan2(first, near), np.arctan2(last, near)
        middle, half = 0.5 * (low + high), 0.5 * (high - low)
        angle = middle[:, None] + half[:, None] * nodes
        # cos of an angle that rounds to π/2 is 6e-17, and the edge that far away covers everything
        edge = near[:, None] / np.maximum(np.cos(angle), 1e-17)
        swept = half * (radial_distribution(noise, edge) @ weights)
        chance += np.sign(height) * swept / (2.0 * math.pi)
    return (is_inside.astype(np.float64) if noise is None else chance) / volume


def plane_distance(scheme: JoPEQ, rings: int = _RINGS) -> PlaneDistance:
    """The distance of the total error of JoPEQ on A2 from its t target, without overload.

    The integrals run over q = P(‖target‖ ≤ r), in which the target's mass is uniform, by the
    midpoint rule, and over a sector of 30°: the cell is symmetric and repeats it twelve times.
    """
    target = scheme.target.noise
    nodes, weights = np.polynomial.legendre.leggauss(_ANGLES)
    angles = math.pi / 12 * (nodes + 1.0)
    chances = (np.arange(rings) + 0.5) / rings
    radii = radius_at(target, chances)
    points = radii[:, None, None] * np.stack((np.cos(angles), np.sin(angles)), axis=-1)
    flat = points.reshape(-1, 2)
    ratio = dithered_density(scheme.noise, scheme.cells.step, flat) / target.density(flat)
    ratio = ratio.reshape(rings, _ANGLES)
    variation = 0.5 * float((np.abs(ratio - 1.0) @ weights).mean()) / 2.0
    mass = (ratio @ weights) / 2.0
    ahead = np.cumsum(mass) / rings - np.arange(1, rings + 1) / rings
    return PlaneDistance(float(np.abs(ahead).max()), variation, abs(float(mass.mean()) - 1.0))
