"""``records``: what is stated against exact laws, the distance of totals, the noise of real shares.

The exact laws convolve the sampler's integer tables; δ(ε) of the claim comes from the accountant.
"""

from __future__ import annotations

import math
from decimal import Decimal
from functools import reduce

import numpy as np
import pytest
from dp_accounting import get_epsilon_gaussian

import jopeq
from jopeq.noise.gaussian_rounding import GaussianRounding
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.sums.clipped_total import UNITS
from jopeq.sums.record_accounting import (
    RecordRounds,
    delta_of,
    epsilon_of,
    epsilon_within,
    least_multiplier,
)
from jopeq.sums.record_plan import FINE, RECORD_GRID, capacity_of, distance_of, tau_of
from jopeq.sums.record_sum import place
from jopeq.sums.shares import layers, rotate
from jopeq.sums.sum_law import SumPrivacy, least_sigmas
from jopeq.wire.rotation import rotate_block

EPSILONS = (0.1, 0.3, 1.0, 2.0, 4.0)
SEED = bytes(range(32))


# Exact laws of one entry: arrays of chances from a common first letter on


def share_law(law, fine, width=96):
    """Of a share of a total at ``fine``/256 places: byte, then draw; letters −width … width."""
    chances = np.zeros(2 * width + 1)
    places, counts = np.unique((fine + np.arange(FINE)) >> 8, return_counts=True)
    for one, count in zip(places.tolist(), counts.tolist(), strict=True):
        first, row = law.chances(one)
        chances[width + first : width + first + len(row)] += row * (count / FINE)
    return chances


def mixed(law, fine, move, sampling):
    """A hospital's share where a record that moves its total by ``move`` is drawn or not."""
    return (1 - sampling) * share_law(law, fine) + sampling * share_law(law, fine + move)


def hockey_stick(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def claimed(law, honest, bound, sampling, *, entries=1, rounds=1, copies=1, tau=0.0):
    """The accountant's rounds for totals that one record moves by at most ``bound`` places."""
    least, rounding = least_sigmas(1.0, entries * rounds, honest)
    assert law.sigma64 >= least
    given = {"share_sigma": law.sigma64, "rounding_sigma": rounding, "variation": law.variation}
    privacy = SumPrivacy(honest=honest, draws=entries, **given)
    apart = distance_of(bound, entries, 1, 0.0, Decimal(tau or 1e-30))
    multiplier = RECORD_GRID * float(privacy.variance.sqrt() / apart)
    given = {"kappa": float(privacy.kappa), "variation": float(privacy.tau), "tau": copies * tau}
    return RecordRounds(multiplier, sampling, copies, rounds, **given)


def worst_ratio(worlds, run):
    """The largest exact δ beside the claimed one, over ε and both directions."""
    one, two = worlds
    ratios = []
    for epsilon in EPSILONS:
        stated = delta_of((run,), epsilon)
        exact = max(hockey_stick(one, two, epsilon), hockey_stick(two, one, epsilon))
        if stated > 1e-12:
            ratios.append(exact / stated)
    return max(ratios)


def repeated(worlds, rounds):
    return [reduce(np.multiply.outer, [world] * rounds) for world in worlds]


ONE = [  # σ·64, B, q, fine place of the total, h
    (96, 4096, 1.0, 0, 2),
    (96, 6000, 0.3, 77_777, 2),
    (90, 9000, 0.05, -1, 4),
    (120, 2000, 0.5, 128, 3),
    (160, 12_000, 0.14, 128 * 4096, 9),
    (100, 300, 0.7, 255, 2),
]


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize(("sigma64", "bound", "sampling", "fine", "honest"), ONE)
def test_exact_delta_of_one_entry(sigma64, bound, sampling, fine, honest, rounds):
    law, others = GaussianRounding(sigma64, RECORD_GRID), [5, -9000, 31, 2048, 1, 0, 4095, 7]
    rest = reduce(np.convolve, [share_law(law, FINE * other) for other in others[: honest - 1]])
    run = claimed(law, honest, bound, sampling, rounds=rounds)
    for move in (FINE * bound + 1, -FINE * bound, FINE * bound // 2 + 128):
        worlds = [np.convolve(rest, mixed(law, fine, move, chance)) for chance in (sampling, 0.0)]
        if rounds == 2:  # beyond, nothing is drawn
            worlds = [world[60 * honest : -60 * honest] for world in worlds]
        ratio = worst_ratio(repeated(worlds, rounds), run)
        assert ratio <= 1.0
        if abs(move) >= FINE * bound and bound > 1000:
            assert ratio >= 0.5  # what is stated is not far from what holds


@pytest.mark.parametrize(
    ("angle", "sampling", "honest"), [(0.0, 1.0, 2), (0.7, 0.3, 3), (2.2, 0.1, 2), (0.785, 0.5, 2)]
)
def test_exact_delta_of_two_entries(angle, sampling, honest):
    law, bound = GaussianRounding(100, RECORD_GRID), 5000
    moves = [round(FINE * bound * part) for part in (math.cos(angle), math.sin(angle))]
    rest = reduce(np.convolve, [share_law(law, 1000 * i) for i in range(honest - 1)])
    drawn, away = (
        np.multiply.outer(
            *(np.convolve(rest, share_law(law, 33 + is_drawn * move)) for move in moves)
        )
        for is_drawn in (1, 0)
    )
    worlds = ((1 - sampling) * away + sampling * drawn, away)
    assert 0.4 <= worst_ratio(worlds, claimed(law, honest, bound, sampling, entries=2)) <= 1.0


@pytest.mark.parametrize("sampling", [0.14, 0.5, 1.0])
@pytest.mark.parametrize("copies", [2, 3])
def test_exact_delta_of_copies(copies, sampling):
    law, bound = GaussianRounding(110, RECORD_GRID), 4000
    for signs in ((1, 1, 1), (1, -1, 1)):
        worlds = [
            reduce(
                np.convolve,
                [mixed(law, 999 * i, FINE * bound * signs[i], chance) for i in range(copies)],
            )
            for chance in (sampling, 0.0)
        ]
        run = claimed(law, copies, bound, sampling, copies=copies)
        ratio = worst_ratio(worlds, run)
        assert ratio <= 1.0
        if signs[1] > 0:
            alone = claimed(law, copies, bound, sampling)
            assert ratio >= 0.4
            assert worst_ratio(worlds, alone) > 1.0  # the claim for one copy would be wrong


@pytest.mark.parametrize("size", [2, 5])
def test_exact_delta_of_a_patient_with_several_rows(size):
    """Rows of a patient are drawn and clipped as one; drawn one by one they would break the ε."""
    law, bound, sampling = GaussianRounding(96, RECORD_GRID), 6000, 0.2
    rows = np.concatenate((np.full((3, 1), 0.4), np.full((size, 1), 1.0)))
    numbers = np.array([0, 1, 2] + [3] * size)
    totals = [
        jopeq.ClippedTotal(1, 1.0).add(rows[:count], group=numbers[:count]).values[0]
        for count in (3 + size, 3)
    ]
    fines = [round(FINE * bound * int(total) / UNITS) for total in totals]
    rest, run = share_law(law, 0), claimed(law, 2, bound, sampling)
    move = fines[0] - fines[1]
    worlds = [np.convolve(rest, mixed(law, fines[1], move, q)) for q in (sampling, 0.0)]
    assert 0.4 <= worst_ratio(worlds, run) <= 1.0
    one_by_one = sum(
        math.comb(size, j) * sampling**j * (1 - sampling) ** (size - j) * share_law(law, j * move)
        for j in range(size + 1)
    )
    broken = (np.convolve(rest, one_by_one), np.convolve(rest, share_law(law, 0)))
    assert worst_ratio(broken, run) > 1.0


# The distance


@pytest.mark.parametrize("entries", [1, 7, 300, 20_000])
@pytest.mark.parametrize("bound", [2, 100, 5000])
def test_the_distance_holds_for_phases_at_their_worst(entries, bound):
    """Sparse moves, moves just below and above a byte's granularity, moves that end in a half."""
    rng, tau = np.random.default_rng(entries), 1e-9
    root = math.sqrt(entries)
    moves = [
        np.eye(1, entries)[0] * bound,
        np.full(entries, bound / root),
        np.where(np.arange(entries) < max(1, min(entries, 4 * bound**2)), 0.5, 0.0),
        np.full(entries, min(bound / root, 1 / 256 + 1e-9)),
        np.full(entries, min(bound / root, 1 / 256 - 1e-9)),
        rng.normal(size=entries) * bound / root * 0.99,
    ]
    exceeds_bound = False
    for move in moves:
        move *= min(1.0, bound / np.linalg.norm(move))
        for start in (np.zeros(entries), np.full(entries, 1 / 512), rng.uniform(-9, 9, entries)):
            for key in (b"a" * 32, b"b" * 32):
                one, two = (
                    place(values.copy(), PrivateStream.reproducible(key))
                    for values in (start, start + move)
                )
                squares = int(np.square(two - one).sum())
                assert squares <= distance_of(bound, entries, 1, 0.0, Decimal(tau)) ** 2
                exceeds_bound |= squares > (bound * 1.01) ** 2
    if entries > 5 and entries / 4 > 0.05 * bound**2:
        assert exceeds_bound  # without the grid's term the bound would be wrong


def test_the_distance_of_rotated_floats():
    """A record beside a million rows that all point one way: floats add next to nothing."""
    bound, dimension, count = 20_000, 3000, 1_000_000
    record = np.zeros(dimension, dtype=np.int64)
    record[5] = UNITS
    others = np.full(dimension, int(count * UNITS / math.sqrt(dimension)), dtype=np.int64)
    turned = []
    for total in (others, others + record):
        turned.append(rotate(total, bound / UNITS, SharedStream(SEED)))
    apart = np.linalg.norm(turned[1] - turned[0])
    allowed = float(distance_of(bound, dimension, count, 0.0, Decimal("1e-9")))
    assert bound * (1 - 1e-6) <= apart <= bound * (1 + 1e-6) <= allowed


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64])
def test_totals_of_any_type_are_scaled_in_float64(kind):
    values = np.random.default_rng(3).integers(-(2**23), 2**23, 3000).astype(kind)
    found = rotate(values, 1 / 3, SharedStream(SEED))
    expected, shared = values.astype(np.float64) * (1 / 3), SharedStream(SEED)
    for first, last, start in layers(len(values)):
        expected[first:last] = rotate_block(expected[first:last], start, shared)
    assert found.tobytes() == expected.tobytes()


def test_a_sample_is_cut_as_rarely_as_is_stated():
    from scipy.stats import binom

    for cap, sampling, chance in ((40, 0.2, 1e-6), (400, 0.14, 1e-10), (6000, 0.14, 1e-12)):
        size = capacity_of(cap, sampling, Decimal(chance))
        assert binom(cap, sampling).sf(size - 1) <= chance
        if size < cap:
            assert (
                size
                <= cap * sampling + 1.2 * math.sqrt(2 * cap * sampling * -math.log(chance)) + 20
            )
    assert capacity_of(5, 0.9, Decimal("1e-9")) == 5
    assert capacity_of(7, 1.0, Decimal("1e-9")) == 7


# The accountant


def test_the_accountant_composes_runs_and_charges_the_rest():
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant()
    for multiplier, sampling, rounds in ((4.3, 0.14, 60), (20.0, 1.0, 1)):
        event = dp_event.GaussianDpEvent(multiplier)
        if sampling < 1:
            event = dp_event.PoissonSampledDpEvent(sampling, event)
        accountant.compose(dp_event.SelfComposedDpEvent(event, rounds))
    runs = (RecordRounds(4.3, 0.14, 1, 60), RecordRounds(20.0, 1.0, 1, 1))
    theirs = accountant.get_epsilon(1e-5)
    assert theirs - 1e-6 <= epsilon_of(runs, 1e-5, 2.0) <= theirs * 1.001
    assert epsilon_of(runs, 1e-5, 0.5) == math.inf
    assert epsilon_of((), 1e-5, 1.0) == 0.0
    rough = [RecordRounds(20.0, 1.0, variation=2e-9)]  # (1 + e⁹)·v is above δ
    assert epsilon_of(rough, 1e-5, 9.0) == math.inf
    assert epsilon_within(rough, 1e-5, 9.0) == pytest.approx(epsilon_of(rough, 1e-5, 1.0), rel=0.02)
    assert epsilon_within(runs, 1e-5, 0.5) == math.inf
    for left, is_told in ((2e-12, True), (5e-13, False)):  # of δ: of less no ε is computed
        put_by = [RecordRounds(20.0, 1.0, tau=1e-5 - left)]
        assert math.isfinite(epsilon_of(put_by, 1e-5, 2.0)) == is_told
    charged = [RecordRounds(4.3, 0.14, 1, 60, kappa=1e-5, tau=1e-9, variation=1e-9)]
    plain = [RecordRounds(4.3, 0.14, 1, 60)]
    for epsilon in (0.5, 1.0):
        rest = 60 * (1e-9 + (1 + math.exp(epsilon)) * 1e-9)
        expected = math.exp(6e-4) * delta_of(plain, epsilon - 1.2e-3) + rest
        assert delta_of(charged, epsilon) == pytest.approx(expected, rel=1e-3)
    for given in ((1.0, 1e-5, 0.14, 60, 1), (2.0, 1e-5, 0.3, 10, 2), (0.5, 1e-6, 1.0, 7, 3)):
        epsilon, delta, *rest = given
        least = least_multiplier(*given)
        sampling, rounds, copies = rest
        spent = [
            epsilon_of((RecordRounds(z, sampling, copies, rounds),), delta, 1.1 * epsilon)
            for z in (least, least * (1 - 2.0**-9))
        ]
        assert spent[0] <= epsilon * 1.001
        assert spent[1] >= epsilon * 0.999


# Real shares


def summed(scheme, totals, label, seed=SEED):
    """The sum of shares of these totals, by noise that a test can repeat, centred."""
    plan, total = scheme.plan(totals[0].dimension), 0
    for number, one in enumerate(totals):
        noise = PrivateStream.reproducible(label.ljust(24, b".") + number.to_bytes(8, "little"))
        total = total + scheme.encode(one, seed=seed, noise=noise).astype(np.int64)
    half = 1 << (plan.bits - 1)
    return ((total + half) & ((1 << plan.bits) - 1)) - half


def test_real_shares_have_the_noise_that_the_accountant_was_given():
    scheme = jopeq.RecordSum(
        epsilon=1.0, clip=0.5, records=4000, sampling=0.2, rounds=50, clients=5, threshold=5
    )
    dimension, rounds = 30_000, 12
    plan = scheme.plan(dimension)
    zero = [jopeq.ClippedTotal(dimension, 0.5)] * plan.honest
    sums = np.concatenate([summed(scheme, zero, bytes([i])) for i in range(rounds)])
    rounding = least_sigmas(1.0, dimension * 50, plan.honest)[1] / 64
    tau = tau_of(scheme)
    apart = distance_of(plan.bound, dimension, scheme.capacity(), scheme.batch_dependence, tau)
    needed = (plan.noise_multiplier * float(apart) / RECORD_GRID) ** 2 + rounding**2

    def is_right(noise):
        variance, error = float(np.mean(np.square(noise))), math.sqrt(2 / len(noise))
        return abs(variance / needed - 1) <= 5 * error + 1e-3  # B is a whole number

    assert is_right(sums)
    assert not is_right(0.95 * sums)
    assert not is_right(1.05 * sums)


def test_a_canary_is_hidden_as_well_as_is_stated_and_no_better():
    """The likelihood-ratio attack on real sums of two honest hospitals, all else known."""
    given = {"records": 100, "sampling": 1.0, "rounds": 1, "most_records": 50}
    scheme = jopeq.RecordSum(epsilon=8.0, clip=1.0, clients=3, threshold=3, **given)
    dimension, trials = 8, 3000
    plan = scheme.plan(dimension)
    canary = np.full((1, dimension), 1.0)
    totals = [jopeq.ClippedTotal(dimension, 1.0).add(rows) for rows in (canary, canary[:0])]
    direction = rotate(totals[0].values, plan.bound / UNITS, SharedStream(SEED))
    direction /= np.linalg.norm(direction)
    scores = np.empty((2, trials))
    for trial in range(trials):  # the same noise in both worlds: their means differ less by chance
        for world in range(2):
            label = trial.to_bytes(4, "little")
            scores[world, trial] = summed(scheme, [totals[world], totals[1]], label) @ direction
    gaps = scores[0] - scores[1]
    strength = gaps.mean() / math.sqrt(scores.var(axis=1, ddof=1).mean())
    error = 5 * math.sqrt(gaps.var() / gaps.mean() ** 2 + 0.5) / math.sqrt(trials)
    found, above = (
        get_epsilon_gaussian(1 / (strength * (1 + part)), 1e-5) for part in (-error, error)
    )
    assert 0.8 * plan.epsilon <= found <= plan.epsilon <= 8.0
    assert above >= 0.95 * plan.epsilon
