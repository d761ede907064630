"""``sum``: what is stated against the exact law of the integers, the sampler, errors, refusals."""

from __future__ import annotations

import decimal
import itertools
import json
import math
from decimal import Decimal

import mpmath
import numpy as np
import pytest
from scipy import stats

import jopeq
from jopeq.noise.gaussian_rounding import GRID, GaussianRounding
from jopeq.privacy.accounting import gaussian_sigma
from jopeq.random.streams import PrivateStream
from jopeq.sums.secure_sum import place as to_grid
from jopeq.sums.secure_sum import within
from jopeq.sums.sum_law import SumPrivacy, largest_mu, least_sigmas, rounding_excess, shares_excess
from jopeq.sums.sum_plan import errors_of
from tests.golden import make_shares

SEED = bytes(range(32))
COMMON = {"epsilon": 4.0, "delta": 1e-5, "clip": 1.0, "colluding": 0}
EPSILONS = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0)


def summed(scheme, updates, seed=SEED, label=b"n"):
    """The sum of the shares, by noise that a test can repeat."""
    total = 0
    for number, update in enumerate(updates):
        key = label.ljust(24, b".") + number.to_bytes(8, "little")
        noise = PrivateStream.reproducible(key)
        total = total + scheme.encode(update, seed=seed, noise=noise).astype(np.int64)
    return total


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


def statement(law, honest, rounding, distance, entries=1):
    """What is stated for shares of that law at that distance (in steps/256)."""
    return SumPrivacy(
        honest=honest,
        share_sigma=law.sigma64,
        rounding_sigma=rounding,
        entries=entries,
        rounds=1,
        distance=Decimal(distance) / GRID,
        variation=law.variation,
    )


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


@pytest.mark.parametrize("honest", [2, 8, 20])
def test_a_whole_plan_by_its_privacy_losses(honest):
    """All entries of a real plan: losses are added up on a grid, each rounded up, by an FFT."""
    scheme = jopeq.SecureSum(**COMMON, clients=honest, threshold=honest, kept=1.0)
    plan, unit, size = scheme.plan(40), 8e-5, 1 << 19
    value = np.fft.fftfreq(size, 1 / (size * unit))
    for entries in (1, 40):  # the largest input, in one entry or evenly in all
        place = math.floor(plan.bound / math.sqrt(entries))
        p, q = aligned(*(law_of_sum(plan.law, [0] * (honest - 1) + [y]) for y in (place, 0)))
        p, q = p[p > 0], q[p > 0]
        with np.errstate(divide="ignore"):
            losses = np.ceil(np.log(p / q) / unit)
        near = np.abs(losses) < size // 4
        once = np.bincount(losses[near].astype(int) % size, p[near], size)
        chances = np.fft.irfft(np.fft.rfft(once) ** entries, size)
        exact = float(chances @ -np.expm1(np.minimum(4.0 - value, 0.0)))
        exact += entries * float(p[~near].sum())
        assert exact <= scheme.delta
        assert exact >= 0.5 * scheme.delta  # what is stated is not far from what holds


def test_decimal_accounting_agrees_with_the_analytic_formula():
    for epsilon, delta in itertools.product((0.1, 1.0, 4.0, 20.0), (1e-12, 1e-5, 0.1)):
        mu = float(largest_mu(Decimal(epsilon), Decimal(delta)))
        assert mu == pytest.approx(1.0 / gaussian_sigma(epsilon, delta, 1.0), rel=1e-11)


@pytest.mark.parametrize(
    "given",
    [
        {"clients": 100, "threshold": 67, "bits": 13},
        {"clients": 20, "threshold": 15, "colluding": 5, "participations": 30},
        {"clients": 2, "threshold": 2, "neighbours": "replaced"},
        {"clients": 1000, "threshold": 900, "epsilon": 8.0},
    ],
    ids=str,
)
def test_what_a_plan_states_is_what_was_asked_for(given):
    scheme = jopeq.SecureSum(**{**COMMON, **given})
    for dimension in (1000, 60_000):
        plan = scheme.plan(dimension)
        assert 0.98 * scheme.epsilon <= plan.epsilon <= scheme.epsilon * (1 + 1e-9)
        assert plan.price <= 1.05
        # at the threshold nobody is missing: as good as a central Gaussian of that many clients
        if scheme.colluding == 0:
            ratio = scheme.expected_error(dimension, norm=0.0, clients=scheme.threshold)
            assert ratio <= 1.05 * scheme.central_error(dimension, clients=scheme.threshold)


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


def test_places_keep_the_norm_whatever_comes():
    wide = np.random.default_rng(0).normal(0, 40.0, 70_000)
    infinite = np.array([np.inf, -np.inf, 3.0])
    for values in (np.full(1000, 1e300), np.full(1000, 0.5), infinite, wide, np.zeros(5)):
        for bound in (1, 3, 1000):
            noise = PrivateStream.reproducible(bytes(32))
            places = within(to_grid(values.copy(), bound, noise), bound)
            assert sum(int(y) ** 2 for y in places) <= bound**2
    assert within(np.array([3, -4]), 5).tolist() == [3, -4]  # what fits stays as it is


# Coding


def test_unbiased_with_the_error_that_is_stated():
    """The mean of a cohort along a fixed direction, and its squared error, over several rounds."""
    rng = np.random.default_rng(5)
    cases = (
        {"clients": 20, "threshold": 20, "kept": 1.0},
        {"clients": 20, "threshold": 14, "kept": 0.3},
        {"clients": 12, "threshold": 10, "bits": 10},
    )
    for given in cases:
        scheme = jopeq.SecureSum(**COMMON, **given)
        dimension, rounds, count = 1500, 12, given["clients"]
        updates = rng.normal(size=(count, dimension)) + rng.normal(size=dimension)
        updates *= 0.9 / np.linalg.norm(updates, axis=1, keepdims=True)
        mean = updates.mean(axis=0)
        norm = float(np.linalg.norm(mean))
        found, errors = [], []
        for number in range(rounds):
            seed = number.to_bytes(32, "little")
            total = summed(scheme, updates, seed, str(given).encode()[:20] + bytes([number]))
            got = scheme.decode(total, seed=seed, dimension=dimension, clients=count)
            found.append(float((got - mean) @ mean) / norm)
            errors.append(float(np.square(got - mean).sum()))
        expected = scheme.expected_error(dimension, norm=norm)
        # along one direction the error has a d-th of the noise and, where entries are left out,
        # the spread of the kept ones; its square a relative deviation of √(2/(rounds·kept))
        assert abs(np.mean(found)) <= 5 * np.std(found, ddof=1) / math.sqrt(rounds)
        slack = 5 * math.sqrt(2.0 / (rounds * scheme.plan(dimension).kept))
        assert np.mean(errors) == pytest.approx(expected, rel=slack)


def test_long_updates_are_clipped_and_short_ones_are_not():
    scheme = jopeq.SecureSum(
        epsilon=12.0, delta=0.1, clip=2.0, clients=200, threshold=200, bits=16, kept=1.0
    )
    update = np.zeros(50)
    update[3] = 1.5
    deviation = 2.0 * math.sqrt(scheme.expected_error(50, norm=0.0) / 50)  # of an entry's mean
    for size, expected in ((1.0, 1.5), (100.0, 2.0)):
        total = summed(scheme, [size * update] * 30)
        got = scheme.decode(total, seed=SEED, dimension=50, clients=200) * (200 / 30)
        assert got[3] == pytest.approx(expected, abs=5 * deviation * math.sqrt(200 / 30))


def test_whatever_the_floats_are_a_share_comes():
    scheme = jopeq.SecureSum(**COMMON, clients=10, threshold=7)
    plan, narrow = scheme.plan(300), np.zeros((10, 30), np.float16)
    mixed = np.where(np.arange(300) % 2, np.float32(3e38), np.float32(-np.inf))
    for update in (np.full(300, np.nan), np.full(300, 1e300), mixed, narrow, np.arange(600.0)[::2]):
        with np.errstate(all="raise"):
            share = scheme.encode(update, seed=SEED)
        assert (share.shape, share.dtype) == ((plan.kept,), plan.dtype)
        assert int(share.max()) < 1 << plan.bits


def test_invalid_entries_count_as_zero_or_the_clip():
    scheme = jopeq.SecureSum(**COMMON, clients=10, threshold=7)
    update, clean = np.full(300, 0.01), np.full(300, 0.01)
    update[:3], clean[:3] = (np.nan, -np.inf, 1e60), (0.0, -1.0, 1.0)
    shares = [
        scheme.encode(each, seed=SEED, noise=PrivateStream.reproducible(bytes(32)))
        for each in (update, clean, {"a": clean[:100].reshape(10, 10), "n": 3, "b": clean[100:]})
    ]
    assert (shares[0] == shares[1]).all()
    assert (shares[0] == shares[2]).all()  # a state is its entries, one after the other
    assert scheme.encode(np.empty(0), seed=SEED).shape == (0,)
    assert scheme.decode(np.empty(0, int), seed=SEED, dimension=0, clients=7).shape == (0,)


def test_dropouts_above_the_threshold_decode_and_below_are_refused():
    scheme = jopeq.SecureSum(**COMMON, clients=10, threshold=7, bits=9, kept=1.0)
    rng = np.random.default_rng(1)
    updates = rng.normal(size=(10, 400)) / 20
    updates /= np.maximum(1.0, np.linalg.norm(updates, axis=1, keepdims=True))
    for count in (7, 8, 10):
        total = summed(scheme, updates[:count]) % (1 << 9)  # as a secure sum gives it
        got = scheme.decode(total, seed=SEED, dimension=400, clients=count)
        expected = scheme.expected_error(400, norm=0.0, clients=count)
        error = float(np.square(got - updates[:count].mean(axis=0)).sum())
        assert error == pytest.approx(expected, rel=5 * math.sqrt(2 / 400))
    for count in (0, 6, 11):
        with pytest.raises(ValueError, match="clients"):
            scheme.decode(total, seed=SEED, dimension=400, clients=count)


def test_wrap_is_told_and_too_few_bits_are_refused():
    with pytest.raises(ValueError, match="bits=13"):
        jopeq.SecureSum(**COMMON, clients=1000, threshold=1000, bits=8).plan(7850)
    scheme = jopeq.SecureSum(**COMMON, clients=1000, threshold=1000, bits=13)
    plan = scheme.plan(7850)
    # all send the same update of norm C: a sum's deviation is that of the signal and the noise
    signal = 1000 / (plan.step * math.sqrt(4096))
    deviation = math.hypot(signal, math.sqrt(1000) * plan.sigma)
    chance = 2 * stats.norm.sf(2.0 ** (plan.bits - 1) / deviation)
    assert chance <= plan.wrap <= 1.1 * chance + 1e-12
    # a sum that wraps decodes to its other representative
    small = jopeq.SecureSum(**COMMON, clients=2, threshold=2, bits=7, kept=1.0)
    step = small.plan(1).step
    for total, centred in ((63, 63), (64, -64), (128 + 5, 5), (-3, -3)):
        got = small.decode(np.array([total]), seed=SEED, dimension=1, clients=2)
        assert abs(float(got[0])) == pytest.approx(abs(centred) * step / 2, rel=1e-6)


def test_few_bits_hold_a_short_mean_and_the_plan_says_what_wrapping_costs():
    given = {**COMMON, "clients": 100, "threshold": 100, "bits": 6}
    with pytest.raises(ValueError, match="bits=8"):
        jopeq.SecureSum(**given).plan(7850)
    scheme = jopeq.SecureSum(**given, largest_mean=0.3)
    plan = scheme.plan(7850)
    assert 1.2 < plan.price < 1.35
    assert plan.epsilon <= 4.0
    assert '"largest_mean":0.3' in scheme.spec
    rng = np.random.default_rng(6)
    update = rng.standard_normal(7850)
    update *= 0.3 / np.linalg.norm(update)
    total = summed(scheme, [update] * 100) % 64
    mean = scheme.decode(total, seed=SEED, dimension=7850, clients=100)
    error, expected = float(np.square(mean - update).sum()), scheme.expected_error(7850)
    noise = errors_of(7850, plan.kept, plan.sigma, plan.bound, 16, 0.3, 100).noise
    # the plan bounds what wrapping costs; 5 deviations of the noise's chi-square on either side
    assert noise * (1 - 5 * math.sqrt(2 / 7850)) < error < expected
    assert scheme.expected_error(7850, norm=0.3) == expected


def test_the_plan_does_not_depend_on_the_apps_decimals():
    given = {**COMMON, "epsilon": 3.7, "clients": 33, "threshold": 30}
    expected = jopeq.SecureSum(**given).plan(12_345)
    from jopeq.noise import gaussian_rounding
    from jopeq.sums import sum_law as accounting
    from jopeq.sums import sum_plan

    for cached in (sum_plan.plan_for, sum_plan._law, gaussian_rounding._rows, accounting.largest_mu,
                   accounting.least_sigmas):  # fmt: skip
        cached.cache_clear()
    with decimal.localcontext(decimal.Context(prec=4, rounding=decimal.ROUND_UP)):
        assert jopeq.SecureSum(**given).plan(12_345) == expected


def test_golden_shares():
    stored = json.loads(make_shares.FILE.read_text())
    assert stored == {name: make_shares.made(case) for name, case in make_shares.CASES.items()}


def test_a_scheme_by_name_and_specification():
    given = {**COMMON, "clients": 100, "threshold": 67, "bits": 9}
    scheme = jopeq.scheme("sum", **given)
    assert scheme == jopeq.SecureSum(**given)
    assert jopeq.scheme_from_spec(scheme.spec) == scheme
    assert scheme.bits_for(1000) == 9 * scheme.plan(1000).kept
    stated = scheme.guarantee
    assert (stated.epsilon, stated.delta) == (4.0, 1e-5)
    assert (stated.unit, stated.adversary) == ("client", "sum")


def test_wrong_arguments_are_refused():
    scheme = jopeq.SecureSum(**COMMON, clients=10, threshold=7, kept=1.0)
    with pytest.raises(ValueError, match="seed must be 32 bytes"):
        scheme.encode(np.zeros(3), seed=b"short")
    with pytest.raises(ValueError, match="total must be 3 integers"):
        scheme.decode(np.zeros(4, int), seed=SEED, dimension=3, clients=7)
    with pytest.raises(ValueError, match="dimension must be"):
        scheme.plan(0)
    with pytest.raises(jopeq.UpdateError, match="only floats"):
        scheme.encode(np.zeros(3, int), seed=SEED)
    spent = PrivateStream()
    scheme.encode(np.zeros(3), seed=SEED, noise=spent)
    with pytest.raises(ValueError, match="has drawn the noise"):
        scheme.encode(np.zeros(3), seed=SEED, noise=spent)


def test_what_cannot_be_planned_says_which_way_to_go():
    many = {"epsilon": 8.0, "clip": 1.0, "clients": 10_000, "threshold": 10_000}
    with pytest.raises(ValueError, match="delta"):
        jopeq.SecureSum(**many, participations=100).plan(15_610)
    with pytest.raises(ValueError, match="clients"):
        jopeq.SecureSum(**many, participations=10).plan(15_610)
    assert jopeq.SecureSum(**many, participations=10, largest_mean=0.4).plan(15_610).price < 1.05
    assert jopeq.SecureSum(**many, participations=100, delta=1e-4).plan(15_610).epsilon <= 8.0


def test_a_curious_participant_is_counted_unless_told_otherwise():
    """Who subtracts the own share from a sum of three faces the noise of two."""
    given = {"epsilon": 4.0, "clip": 1.0, "clients": 5, "threshold": 4}
    scheme = jopeq.SecureSum(**given)
    assert (scheme.colluding, scheme.honest) == (1, 3)
    assert "other participants" in str(scheme.guarantee)
    more = scheme.expected_error(100) / jopeq.SecureSum(**given, colluding=0).expected_error(100)
    assert more == pytest.approx(4 / 3, rel=0.03)
