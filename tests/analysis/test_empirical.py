"""The attack never beats an honest scheme and catches every sampler broken here."""

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import pytest
from scipy import stats

from jopeq import audit, scheme
from jopeq.analysis.empirical import bet, empirical_epsilon, limits_of
from jopeq.entries.additive import AdditiveCodec, LaplaceNoise
from jopeq.entries.channelled import DitheredChannelCodec, Response
from jopeq.entries.quantized import DitherCodec, LaplaceThenDither
from jopeq.noise import add_noise, into_unit_ball
from jopeq.random.streams import PrivateStream
from jopeq.schemes.codec import Body, Letters


def test_without_privacy_the_bound_grows_with_the_draws(private):
    bare = scheme("sdq", rate=2.0)
    few = empirical_epsilon(bare, draws=2_000, noise=private("few")).lower
    many = empirical_epsilon(bare, draws=200_000, noise=private("many")).lower
    assert many == pytest.approx(few + math.log(100), abs=0.05)


class ReusedNoise(PrivateStream):
    """Samples 2i and 2i + 1 get the same private word."""

    __slots__ = ()

    def words32(self, *, lane, start, count):
        return self._twice(super().words32, lane, start, count)

    def words64(self, *, lane, start, count):
        return self._twice(super().words64, lane, start, count)

    @staticmethod
    def _twice(words, lane, start, count):
        places = np.arange(start, start + count) // 2
        return words(lane=lane, start=start // 2, count=count // 2 + 1)[places - start // 2]


def broken(kind, engine, **parameters):
    """A scheme that promises what ``kind`` promises and codes with ``engine``."""

    class Broken(kind):
        codec = cached_property(engine)

    Broken.codec.__set_name__(Broken, "codec")
    return Broken(**parameters)


class BiasedThreshold(DitheredChannelCodec):
    """Keeps the level too often: with the thresholds of 1.3 ε."""

    factor = 1.3

    def to_letters(self, *given):
        epsilon, levels = self.factor * self.scheme.epsilon, self.channel.levels
        wrong = Response(epsilon=epsilon, rate=self.scheme.rate, levels=levels)
        return wrong.codec.to_letters(*given)


class Control(BiasedThreshold):
    factor = 1.0


class Unclipped(DitherCodec):
    """Forgets to bring samples into the ball."""

    def to_letters(self, samples, first, shared, private):
        noisy = add_noise(self.noise, samples, private, first)
        dithered = noisy + self.dither(first, len(samples), shared)
        return Letters(self.codebook.quantize(dithered)[0])


class SmallScale(AdditiveCodec):
    """Adds Laplace noise of scale 1/ε: as if the ball had diameter 1."""

    def to_letters(self, samples, first, shared, private):
        inside, clipped = into_unit_ball(samples)
        law = replace(self.noise, scale=self.noise.scale / 2)
        return Letters(np.rint(add_noise(law, inside, private, first) / self.grid), clipped)


def assert_caught(broken, noise):
    report = audit(broken, noise=noise)
    assert report.proven <= broken.epsilon * (1 + 1e-9)  # the claim itself looks sound
    assert report.empirical.lower > report.epsilon, report.empirical
    assert not report.is_consistent
    return report.empirical


@pytest.mark.parametrize(
    "honest",
    [
        *(scheme("response", epsilon=e, rate=r) for e, r in ((0.5, 1.0), (2.0, 3.0), (6.0, 2.0))),
        scheme("laplace", epsilon=4.0),
        scheme("laplace+sdq", epsilon=4.0, rate=1.0),
        scheme("jopeq", epsilon=3.0, rate=2.0),
        scheme("mvu", epsilon=4.0, rate=2.0),
    ],
    ids=lambda broken: broken.spec,
)
def test_noise_that_is_used_twice_is_caught(honest, private):
    key = private("reused stream").read(lane=0, start=0, count=32).tobytes()
    report = audit(honest, noise=ReusedNoise.reproducible(key))
    assert report.empirical.lower > report.epsilon
    assert report.empirical.event.startswith("one of two samples")
    assert not report.is_consistent
    assert audit(honest, noise=PrivateStream.reproducible(key)).is_consistent


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0])
def test_a_biased_threshold_is_caught(epsilon, private):
    for rate in (1.0, 2.0):
        biased = broken(Response, BiasedThreshold, epsilon=epsilon, rate=rate)
        assert assert_caught(biased, private("biased")).certain <= 1.3 * epsilon
    control = broken(Response, Control, epsilon=epsilon, rate=2.0)
    assert audit(control, noise=private("biased")).is_consistent


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_missing_clipping_and_too_small_a_scale_are_caught(epsilon, private):
    unclipped = broken(LaplaceThenDither, Unclipped, epsilon=epsilon, rate=3.0)
    found = assert_caught(unclipped, private("unclipped"))
    assert found.event.startswith("outside the ball")
    found = assert_caught(broken(LaplaceNoise, SmallScale, epsilon=epsilon), private("small"))
    assert found.lower <= 2 * epsilon


@pytest.mark.parametrize("draws", [1, 10, 1_000, 25_000])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99375])
def test_clopper_pearson(draws, confidence):
    for hits in sorted({0, 1, draws // 7, draws // 2, draws - 1, draws}):
        interval = stats.binomtest(hits, draws).proportion_ci(confidence, method="exact")
        assert limits_of(hits, draws, confidence) == pytest.approx(interval, rel=1e-6)
    # where the limits have a closed form, to the last digits
    closed = -math.expm1(math.log((1.0 - confidence) / 2) / draws)
    assert limits_of(0, draws, confidence) == pytest.approx((0.0, closed), rel=1e-9)
    assert limits_of(draws, draws, confidence) == pytest.approx((1 - closed, 1.0), rel=1e-9)


def test_the_bet_is_judged_on_draws_it_was_not_chosen_on():
    """Letters that differ in the first half only win nothing."""
    first = np.concatenate((np.zeros(500, dtype=int), np.arange(500) % 2))[:, None]
    second = np.concatenate((np.ones(500, dtype=int), np.arange(500) % 2))[:, None]
    limits = (0.95, 0.999)
    assert bet(first, second, limits) == (0.0, 0.0)
    shown, sure = bet(first[:500], second[:500], limits)
    assert shown > sure > 3.0
    assert sure > bet(first[:500], second[:500], limits, 0.5)[1] > sure - 1.0  # δ is conceded


@dataclass(frozen=True, kw_only=True)
class SameNoise(Response):
    """Honest samples, but every payload has the same noise."""

    def encode(self, update, *, noise=None, **keywords):
        same = PrivateStream.reproducible(bytes(32))
        return super().encode(update, noise=same, **keywords)


class TellTale(DitheredChannelCodec):
    """Honest samples, but ``encode`` writes the sign of every entry in place of its letter."""

    def to_body(self, entries, scales, shared, private):
        (update,) = entries.tensors
        letters = (np.asarray(update).reshape(-1) > 0).astype(np.int64)
        return Body([self.coder.encode(letters)], 0, 0)


class MostlyTrue(DitheredChannelCodec):
    """Honest samples, but ``encode`` tells 19 of 20 signs: ε = 2.94, and no payload twice."""

    def to_body(self, entries, scales, shared, private):
        (update,) = entries.tensors
        signs = np.asarray(update).reshape(-1) > 0
        is_wrong = private.words64(lane=0, start=0, count=signs.size) < np.uint64(2**64 // 20)
        return Body([self.coder.encode((signs ^ is_wrong).astype(np.int64))], 0, 0)


TELLING = [partial(broken, Response, codec) for codec in (TellTale, MostlyTrue)]


@pytest.mark.parametrize("make", [SameNoise, *TELLING])
def test_mistakes_outside_the_sampler_are_caught(make, private):
    report = audit(make(epsilon=2.0, rate=1.0), noise=private("encode"))
    assert report.empirical.certain > 2.0
    assert not report.is_consistent
    assert audit(Response(epsilon=2.0, rate=1.0), noise=private("encode")).is_consistent


# The low-order-bits attack on floating-point Laplace noise (Mironov 2012), and why it fails here


def textbook_laplace(x, scale, words):
    """x ± b·ln(u) as most libraries compute it."""
    units = ((words >> np.uint64(11)).astype(np.float64) + 1.0) * 2.0**-53
    signs = np.where(words & np.uint64(1), 1.0, -1.0)
    return x + signs * (scale * np.log(units))


def is_reachable(outputs, x, scale):
    """Whether the textbook sampler can have made each output from x."""
    guess = np.rint(np.exp(-np.abs(outputs - x) / scale) * 2.0**53)
    found = np.zeros(len(outputs), dtype=bool)
    for offset in range(-8, 9):
        candidate = np.clip(guess + offset, 1.0, 2.0**53) * 2.0**-53
        noise = scale * np.log(candidate)
        found |= (x + noise == outputs) | (x - noise == outputs)
    return found


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 10.0])
def test_the_grid_leaks_nothing_and_the_textbook_sampler_does(epsilon, private):
    """An output that the other input cannot have made gives the input away: ε = ∞."""
    built, draws = LaplaceNoise(epsilon=epsilon, clip=1.0), 10_000
    for x, other in ((0.3, -0.3), (1.0, -1.0), (0.123456789, 0.0)):
        outputs = built.decode(built.encode(np.full(draws, x))).astype(np.float64)
        distance = np.abs(outputs - np.rint(other / built.grid) * built.grid)
        assert (distance <= built.noise.reach).all()  # every multiple within reach has probability
        if epsilon in (1.0, 4.0):
            words = private(f"textbook {x}").words64(lane=0, start=0, count=draws)
            outputs = textbook_laplace(x, 2.0 / epsilon, words)
            assert is_reachable(outputs, x, 2.0 / epsilon).mean() >= 0.999
            assert is_reachable(outputs, other, 2.0 / epsilon).mean() < 0.8


def test_draws_and_confidence_are_checked():
    for draws in (0, -1, 999, 2e5, math.inf):
        with pytest.raises(ValueError, match="draws"):
            audit(scheme("laplace", epsilon=4.0), draws=draws)
    for confidence in (0.49, 1.0, math.nan):
        with pytest.raises(ValueError, match="confidence"):
            audit(scheme("laplace", epsilon=4.0), confidence=confidence)
