"""The clip bit: its exact law, its guarantee, and where the clip settles."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from jopeq import kernels
from jopeq.entries.adaptive_clip import AdaptiveClip
from jopeq.errors import UpdateError
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.wire.scaling import Scaling


class OneWord(PrivateStream):
    """A stream whose next word is known."""

    def __init__(self, word):
        super().__init__()
        self.word = word

    def words32(self, *, lane, start, count):
        return np.array([self.word], dtype=np.uint32)

    def take(self):
        """Answers as often as it is asked."""


SMALL, LARGE = np.full(10, 0.01), np.full(10, 1.0)  # spreads 0.03 and 3


@pytest.mark.parametrize("epsilon", [1e-6, 0.02, 0.1, 0.5, 1.0, math.log(3), 4.0, 22.0])
def test_the_threshold_is_the_smallest_private_one(epsilon):
    adaptive = AdaptiveClip(epsilon=epsilon)
    threshold = adaptive.threshold
    assert 0 < threshold < 2**31
    assert math.log((2**32 - threshold + 1) / (threshold - 1 or 0.5)) > epsilon
    with localcontext() as context:  # what is claimed is not below what the threshold gives
        context.prec = 50
        exact = (Decimal(2**32 - threshold) / threshold).ln()
        assert exact <= Decimal(adaptive.guarantee.epsilon) <= Decimal(epsilon)
    assert adaptive.guarantee.epsilon == pytest.approx(float(exact), rel=1e-15)


def test_the_guarantee_is_that_of_the_threshold():
    guarantee = AdaptiveClip(epsilon=1.0).guarantee
    assert 1.0 - 1e-9 < guarantee.epsilon <= 1.0 == guarantee.nominal
    assert (guarantee.unit, guarantee.adversary, guarantee.delta) == ("update", "server", 0.0)
    assert guarantee.is_exact
    most = AdaptiveClip(epsilon=100.0)  # 32 bits cannot be less private than that
    assert (most.threshold, most.guarantee.nominal) == (1, 100.0)
    assert most.guarantee.epsilon == pytest.approx(32 * math.log(2), rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 5.0])
def test_the_law_of_the_bit_is_the_threshold(epsilon):
    adaptive = AdaptiveClip(epsilon=epsilon)
    last_flip = adaptive.threshold - 1
    for word, is_flipped in [(0, 1), (last_flip, 1), (last_flip + 1, 0), (2**32 - 1, 0)]:
        assert adaptive.bit(SMALL, 0.1, noise=OneWord(word)) == 1 ^ is_flipped
        assert adaptive.bit(LARGE, 0.1, noise=OneWord(word)) == 0 ^ is_flipped


@pytest.mark.parametrize("dimension", [1, 2, 8])
@pytest.mark.parametrize("spread", [1.5, 3.0])
def test_spread_is_that_of_scaling(dimension, spread):
    from jopeq.wire.entries import Entries

    update = np.random.default_rng(1).normal(size=(13, 7)).astype(np.float32)
    unit = kernels.measure(Entries.of_update(update), Scaling(None, spread), dimension)[0].unit
    adaptive = AdaptiveClip(spread=spread)
    never = OneWord(2**32 - 1)
    assert adaptive.bit(update, unit * (1 + 1e-6), dimension, noise=never) == 1
    assert adaptive.bit(update, unit * (1 - 1e-6), dimension, noise=never) == 0
    state = {"a": update[:5], "b": update[5:], "steps": np.array(3)}
    assert adaptive.bit(state, unit * (1 + 1e-6), dimension, noise=never) == 1
    assert adaptive.bit(state, unit * (1 - 1e-6), dimension, noise=never) == 0


def test_edge_updates():
    adaptive, never = AdaptiveClip(), OneWord(2**32 - 1)
    for update, clip, bit in (
        (np.zeros(0), 1e-30, 1),
        (np.zeros(5), 1e-30, 1),
        (np.full(1, 1.0), 3.0, 1),  # at most, not below
        *((np.full(70_000, large), 1e30, 0) for large in (math.inf, -math.inf, 1e300, -1.7e308)),
        (np.array([math.nan, 0.1]), 1.0, 1),
        (np.array([math.nan, 10.0]), 1.0, 0),
    ):
        assert adaptive.bit(update, clip, noise=never) == bit
    with pytest.raises(UpdateError):
        adaptive.bit(np.array([1, 2]), 1.0)


def test_the_server_step_by_hand():
    adaptive = AdaptiveClip(epsilon=1.0, quantile=0.3, learning_rate=0.2)
    flip = adaptive.threshold / 2**32
    mean = (0.75 - flip) / (1 - 2 * flip)
    expected = 0.1 * math.exp(-0.2 * (mean - 0.3))
    assert adaptive.updated(0.1, [1, 1, 0, 1]) == pytest.approx(expected, rel=1e-14)
    assert adaptive.updated(0.1, iter([True, np.int64(0)])) != 0.1
    assert adaptive.updated(0.1, []) == 0.1


def test_steps_are_bounded():
    wild = AdaptiveClip(epsilon=1e-6, learning_rate=1.0)
    assert wild.updated(0.1, [1]) == pytest.approx(0.05)
    assert wild.updated(0.1, [0]) == pytest.approx(0.2)
    assert wild.updated(1e30, [0]) == 1e30
    assert wild.updated(1e-30, [1]) == 1e-30


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
def test_the_clip_settles_at_the_quantile(quantile, private):
    adaptive = AdaptiveClip(epsilon=1.0, quantile=quantile)
    norms = np.exp(np.random.default_rng(7).normal(-2.0, 1.0, size=100))
    clip, late = 0.3, []
    for turn in range(80):
        words = [private(f"clip {100 * turn + client}") for client in range(100)]
        sent = zip(norms, words, strict=True)
        bits = [adaptive.bit(np.array([norm / 3.0]), clip, noise=noise) for norm, noise in sent]
        clip = adaptive.updated(clip, bits)
        if turn >= 40:
            late.append(np.mean(norms <= clip))
    assert abs(np.mean(late) - quantile) < 0.05


@pytest.mark.parametrize(
    "parameters",
    [
        *({"epsilon": bad} for bad in (0.0, math.inf, math.nan, "1", 1e-12)),
        *({"quantile": bad} for bad in (0.0, 1.0, math.nan)),
        *({"learning_rate": -0.1}, {"spread": 0.0}),
    ],
)
def test_parameters_are_checked(parameters):
    with pytest.raises(ValueError, match=next(iter(parameters))):
        AdaptiveClip(**parameters)


def test_arguments_are_checked():
    adaptive = AdaptiveClip()
    for clip in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="clip"):
            adaptive.bit(SMALL, clip)
        with pytest.raises(ValueError, match="clip"):
            adaptive.updated(clip, [1])
    with pytest.raises(ValueError, match="dimension"):
        adaptive.bit(SMALL, 1.0, 0)
    for bad in (2, -1, 0.5, math.nan, "1", None):
        with pytest.raises(ValueError, match="bits"):
            adaptive.updated(0.1, [0, bad])
    with pytest.raises(ValueError, match="noise must be a PrivateStream, got SharedStream"):
        adaptive.bit(SMALL, 0.1, noise=SharedStream(bytes(32)))
    assert len({AdaptiveClip(epsilon=0.1).bit(SMALL, 0.1) for _ in range(200)}) == 2  # fresh noise
