"""The law of a sum of shares: what is stated against the exact law, and the sampler."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from decimal import Decimal

import mpmath
import numpy as np
import pytest
from scipy import stats

from jopeq.noise.gaussian_rounding import GRID, GaussianRounding
from jopeq.sums.sum_law import SumPrivacy, least_sigmas, rounding_excess, shares_excess

EPSILONS = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0)


def law_of_sum(law, places, bits=None):
    """{integer: probability} of Σ q as an array, modulo 2^bits where bits are given."""
    chances, first = np.ones(1), 0
    for place in places:
        start, row = law.chances(int(place))
        chances, first = np.convolve(chances, row), first + start
    if bits is None:
        return first, chances
    return 0, np.bincount((first + np.arange(len(chances))) % (1 << bits), chances, 1 << bits)


def aligned(one, two):
    first = min(one[0], two[0])
    last = max(start + len(row) for start, row in (one, two))
    rows = np.zeros((2, last - first))
    for row, (start, chances) in zip(rows, (one, two), strict=True):
        row[start - first : start - first + len(chances)] = chances
    return rows


def hockey_stick(p, q, epsilon):
    """The exact δ(ε), in both directions."""
    gaps = [np.maximum(a - math.exp(epsilon) * b, 0.0).sum() for a, b in ((p, q), (q, p))]
    return float(max(gaps))


@dataclass(frozen=True)
class Statement:
    """What is stated for shares of that law at that distance, in steps/256."""

    law: SumPrivacy
    distance: float

    def delta(self, epsilon):
        """δ(ε) = e^κ·δ_G(ε − 2κ) + (1 + e^ε)·τ, with δ_G by Balle and Wang 2018."""
        kappa, tau = float(self.law.kappa), float(self.law.tau)
        mu = self.distance / GRID / math.sqrt(self.law.variance)
        middle = (epsilon - 2 * kappa) / mu
        first = stats.norm.sf(middle - mu / 2)
        second = math.exp(epsilon - 2 * kappa) * stats.norm.sf(middle + mu / 2)
        return math.exp(kappa) * (first - second) + (1 + math.exp(epsilon)) * tau


def statement(law, honest, rounding, distance, entries=1):
    given = {"honest": honest, "share_sigma": law.sigma64, "rounding_sigma": rounding}
    return Statement(SumPrivacy(**given, draws=entries, variation=law.variation), distance)


def test_every_share_of_every_entry_counts():
    given = {"share_sigma": 200, "rounding_sigma": 100, "variation": Decimal("1e-12")}
    one, all_ = (SumPrivacy(honest=4, draws=draws, **given) for draws in (1, 30))
    assert float(all_.tau) == pytest.approx(4 * 30 * 1e-12)
    assert float(all_.kappa) == pytest.approx(30 * float(one.kappa))
    assert one.kappa > 0


# The proof, number by number


@pytest.mark.parametrize("honest", [2, 3, 4, 5, 10, 100])
def test_the_bound_covers_the_whole_theta_series(honest):
    """Θ of the dual of A_{h−1} = √h/(σ√2π)^{h−1}·∫θ(φ)^h dφ; the trapezoid rule only adds to it."""
    with mpmath.workdps(60):
        for sigma in ("0.6", "0.8", "1.0", "1.25"):
            s = mpmath.mpf(sigma)
            points = 64 + 8 * math.isqrt(honest)
            powers = [
                mpmath.jtheta(3, mpmath.pi * j / points, mpmath.exp(-1 / (2 * s * s))) ** honest
                for j in range(points)
            ]
            series = mpmath.sqrt(honest) * mpmath.fsum(powers) / points
            series /= (s * mpmath.sqrt(2 * mpmath.pi)) ** (honest - 1)
            rest = float(series - 1)
            stated = shares_excess(Decimal(sigma), honest)
            total = float(stated - honest * rounding_excess(Decimal(sigma)))  # Ξ/(1 − Ξ)
            bound = total / (1 + total) if math.isfinite(total) else math.inf
            assert rest <= bound
            if float(sigma) >= 1.0 and honest > 2:
                assert bound <= 1.08 * rest  # and wastes little: h = 2 counts each vector twice


@pytest.mark.parametrize(("honest", "sigma"), [(2, 0.8), (3, 0.7), (10, 0.6), (20, 0.8)])
def test_a_sum_is_a_rounded_gaussian_up_to_eta(honest, sigma):
    """|ln P/P'| ≤ η for P' a Gaussian value rounded by a discrete Gaussian, by quadrature."""
    rounding, rng = 0.75, np.random.default_rng(honest)
    spread = math.sqrt(honest * sigma**2 - rounding**2)
    eta = float(shares_excess(Decimal(sigma), honest) + rounding_excess(Decimal(rounding)))
    letters = np.arange(-30, 31)
    for centres in (np.full(honest, 0.5), np.zeros(honest), rng.uniform(-0.5, 0.5, honest)):
        chances = np.ones(1)
        for centre in centres:
            row = np.exp(-((letters - centre) ** 2) / (2 * sigma**2))
            chances = np.convolve(chances, row / row.sum())
        middle, values = centres.sum(), np.arange(len(chances)) - 30 * honest
        near = np.abs(values - middle) < 4.5 * math.sqrt(honest) * sigma
        x = np.linspace(middle - 9 * spread, middle + 9 * spread, 20_001)
        weights = stats.norm.pdf(x, middle, spread) * (x[1] - x[0])
        around = np.round(x)[:, None] + np.arange(-9, 10) - x[:, None]
        total = np.exp(-(around**2) / (2 * rounding**2)).sum(axis=1)
        kernel = np.exp(-((values[near][:, None] - x) ** 2) / (2 * rounding**2)) / total
        assert np.abs(np.log(chances[near] / (kernel @ weights))).max() <= eta


@pytest.mark.parametrize("honest", [2, 3, 5, 10, 20])
def test_stated_delta_covers_the_exact_one(honest):
    """One entry, the real tables, every shift up to the bound, plain and modulo 2^b."""
    rng = np.random.default_rng(honest)
    least, rounding = least_sigmas(1.0, 1, honest)
    for sigma64 in (least, least + 20):
        law = GaussianRounding(sigma64)
        spread = math.sqrt(honest) * sigma64 / 64
        for shift in (1, 64, 128, int(128 * spread), int(256 * spread), int(700 * spread)):
            stated = statement(law, honest, rounding, shift)
            allowed = [(epsilon, stated.delta(epsilon)) for epsilon in EPSILONS]
            for others in (np.zeros(honest - 1), np.full(honest - 1, 128), None):
                if others is None:
                    others = rng.integers(-600, 600, honest - 1)
                pairs = [((*others, shift), (*others, 0)), ((*others, 37), (*others, 37 - shift))]
                for (one, two), bits in itertools.product(pairs, (None, 4, 6, 8)):
                    p, q = aligned(law_of_sum(law, one, bits), law_of_sum(law, two, bits))
                    for epsilon, delta in allowed:
                        assert hockey_stick(p, q, epsilon) <= delta


@pytest.mark.parametrize(("honest", "bits"), [(2, 4), (3, 4), (6, 5)])
def test_several_entries_by_their_product(honest, bits):
    rng = np.random.default_rng(bits)
    least, rounding = least_sigmas(1.0, 3, honest)
    law = GaussianRounding(least)
    shifts = np.array([256, -200, 150]) * honest // 2
    rows = []
    for shift in shifts:
        others = rng.integers(-512, 512, honest - 1)
        rows.append([law_of_sum(law, [*others, y], bits)[1] for y in (shift, 0)])
    p, q = (np.einsum("i,j,k->ijk", *side).ravel() for side in zip(*rows, strict=True))
    stated = statement(law, honest, rounding, float(np.linalg.norm(shifts)), entries=3)
    for epsilon in EPSILONS:
        assert hockey_stick(p, q, epsilon) <= stated.delta(epsilon)


# The sampler


def test_the_sampler_draws_exactly_its_table():
    law = GaussianRounding(77)
    for place in (0, 1, 128, 255):
        row = law.thresholds[place]
        words = np.concatenate((row, row[row > 0] - np.uint64(1)))
        expected = np.searchsorted(row, words, side="right") - law.reach
        for whole in (-3, 0, 5):
            places = np.full(len(words), GRID * whole + place)
            assert (law.draw(places, words) == whole + expected).all()
        assert law.draw(np.array([place]), np.array([2**64 - 1], np.uint64)) == law.reach + 1
        # and the table is the law: its counts are within a word of the ideal ones
        first, chances = law.chances(place)
        with mpmath.workdps(50):
            sigma, y = mpmath.mpf(77) / 64, mpmath.mpf(place) / 256
            weights = [mpmath.exp(-((k - y) ** 2) / (2 * sigma**2)) for k in range(-40, 42)]
            total = mpmath.fsum(weights)
            counts = np.diff([0, *map(int, row), 1 << 64]).tolist()
            ideal = [weights[first + i + 40] / total for i in range(len(counts))]
            off = [abs(mpmath.mpf(c) / 2**64 - p) for c, p in zip(counts, ideal, strict=True)]
            assert (mpmath.fsum(off) + 1 - mpmath.fsum(ideal)) / 2 <= mpmath.mpf(str(law.variation))
        assert np.array(counts, float).tolist() == (chances * 2.0**64).tolist()
