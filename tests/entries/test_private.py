"""Noise before the wire, with and without quantization: laws, grids, guarantees, refusals."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

import jopeq
from jopeq.entries.additive import NoiseTarget
from jopeq.noise import MultivariateT, into_unit_ball
from jopeq.random.portable import MAX_EXPONENTIAL
from jopeq.random.streams import PrivateStream
from jopeq.wire.payload import open_payload

NOISE = bytes(range(60, 92))
T = {"nu": 12.0, "squared_scale": 0.75}


def decoded(scheme, x, count):
    payload = scheme.encode(np.tile(x, (count, 1)), noise=PrivateStream.reproducible(NOISE))
    return scheme.decode(payload).astype(np.float64)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0, 20.0])
@pytest.mark.parametrize("x", [0.0, 0.7, -1.0])
def test_laplace_is_laplace_around_every_input(epsilon, x, assert_follows):
    scheme = jopeq.scheme("laplace", epsilon=epsilon, clip=1.0)
    values = decoded(scheme, [x], 30_000)[:, 0]
    assert_follows(values, stats.laplace(loc=x, scale=2 / epsilon).cdf)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_t_is_multivariate_t_around_every_input(size, assert_follows, assert_mean):
    scheme = jopeq.scheme("t", epsilon=3.0, size=size, clip=1.0, **T)
    x = [0.6] + [-0.1] * (size - 1)
    off = decoded(scheme, x, 30_000) - x
    for axis in range(size):
        assert_follows(off[:, axis], stats.t(df=12.0, scale=math.sqrt(0.75)).cdf)
    radius = np.square(off).sum(axis=1) / (size * 0.75)  # one χ² for all: an F law, not a product
    assert_follows(radius, stats.f(size, 12.0).cdf)
    assert_mean(np.square(off).mean(axis=1), scheme.distortion)


SCHEMES = [
    jopeq.scheme("laplace", epsilon=e, clip=1.0) for e in (1e-4, 0.01, 1.0, 4.0, 40.0, 1000.0)
] + [jopeq.scheme("t", epsilon=e, clip=1.0) for e in (0.01, 1.0, 4.0, 40.0)]


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: s.spec)
def test_what_is_sent_lies_on_a_fine_grid_that_32_bits_reach(scheme):
    assert math.frexp(scheme.grid)[0] == 0.5  # a power of two
    assert (scheme.noise.reach + 1) / scheme.grid <= 2**31 - 1
    assert scheme.name == "t" or scheme.grid <= math.sqrt(scheme.noise.variance) * 2.0**-15
    payload = scheme.encode(np.linspace(-1, 1, 2000))
    words = np.frombuffer(open_payload(payload)[1], "<i4").astype(np.float64)
    np.testing.assert_allclose(
        scheme.decode(payload), (words * scheme.grid)[:2000].astype(np.float32), rtol=1e-7
    )
    # noise this narrow (ε > 48) is not cut, but its sampler ends: see ``add_noise``
    reach = scheme.noise.reach
    end = reach if reach >= 2 else 1 + MAX_EXPONENTIAL * scheme.noise.scale
    assert np.abs(words * scheme.grid).max() <= end + scheme.grid


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_rounding_to_the_grid_does_not_leave_the_ball(size):
    """Or two samples could be more than the diameter apart, and ε a little more than promised."""
    scheme = jopeq.scheme("t", epsilon=3.0, size=size)
    rows = np.random.default_rng(0).standard_normal((50_000, size))
    rows[0], rows[1] = 0.0, 1 / math.sqrt(size)
    rows, _ = into_unit_ball(rows * np.linspace(0.1, 10, 50_000)[:, None])
    on_grid = scheme.codec._on_grid(rows)
    assert np.square(on_grid).sum(axis=1).max() <= 1.0
    assert np.abs(on_grid - rows).max() <= scheme.grid
    np.testing.assert_array_equal(on_grid / scheme.grid, np.rint(on_grid / scheme.grid))


def test_inputs_closer_than_the_grid_send_the_same():
    """What is sent tells nothing of the bits of x below the grid (Mironov 2012)."""
    scheme = jopeq.scheme("laplace", epsilon=2.0, clip=1.0)
    base = np.arange(-100, 100) * (64 * scheme.grid)
    near = base + 0.3 * scheme.grid
    stream = PrivateStream.reproducible(NOISE)
    assert scheme.encode(base, noise=stream) == scheme.encode(near, noise=stream)


def test_t_laws_are_calibrated_given_or_half_given():
    assert NoiseTarget("t", 3.0, 2, 12.0, 0.75).noise == MultivariateT(12.0, 0.75, 2)
    half = NoiseTarget("t", 3.0, 2, nu=6.0).noise
    assert isinstance(half, MultivariateT)
    assert half.nu == 6.0
    assert half.squared_scale == pytest.approx(1.131, abs=5e-4)
    assert half.variance == pytest.approx(1.697, abs=5e-4)
    chosen = NoiseTarget("t", 3.0, 2).noise
    assert chosen.variance <= half.variance
    assert chosen.epsilon() == pytest.approx(3.0)
    assert NoiseTarget("t", 4.0, 2, nu=6.0).noise.variance == pytest.approx(0.921, abs=5e-4)


@pytest.mark.parametrize("name", ["laplace+sdq", "t+sdq", "jopeq"])
@pytest.mark.parametrize("lattice", ["Z", "A2", "E8"])
def test_samples_beyond_the_ball_count_as_its_edge(name, lattice):
    """The guarantee rests on it: what is far must not show."""
    scheme = jopeq.scheme(name, epsilon=2.0, rate=1.0, lattice=lattice, clip=1.0)
    direction = np.ones(scheme.dimension) / math.sqrt(scheme.dimension)

    def coded(size):
        noise = PrivateStream.reproducible(bytes(32))
        update = np.tile(size * direction, 40)
        return scheme.encode(update, seed=bytes(32), noise=noise, counts=True)

    far, counted = coded(50)
    assert (far, counted) == coded(1.0000001)
    assert counted.clipped == 40
    inside, counted = coded(0.99)
    assert (len(inside), counted.clipped) == (len(far), 0)


def finest(name, lattice, rate, **parameters):
    """The scheme of the least cells that are not refused, found from the error."""
    fine = {"epsilon": 4.0, "rate": rate, "lattice": lattice, "clip": 1.0, **parameters}
    with pytest.raises(ValueError, match="raise gamma") as refused:
        jopeq.scheme(name, gamma=1e-20, **fine)
    least = float(str(refused.value).split("at least ")[1].split(" ")[0])
    shape = jopeq.scheme("sdq", rate=rate, lattice=lattice, gamma=1.0).cells
    gamma = least / shape.step
    with pytest.raises(ValueError, match="cells must be at least"):
        jopeq.scheme(name, gamma=0.98 * gamma, **fine)
    return jopeq.scheme(name, gamma=1.02 * gamma, **fine)


@pytest.mark.parametrize("dither", [-0.4999, 0.3])
def test_the_finest_cells_keep_to_the_printed_epsilon(dither, log_chances):
    """P(q|x) counted exactly, draw by draw; steps of 2⁻⁴⁵ exceeded ε, those of 2⁻⁵³ ruled x out."""
    scheme = finest("laplace+sdq", "Z", 31.0)
    law, cells, step = scheme.noise, scheme.cells, scheme.cells.step
    assert scheme.codebook.gamma > 22.0
    limit = law.reach - 1.0

    def output_of(x):
        def outputs(draws):
            noisy = np.clip(x + law.scale * draws, -limit, limit) + dither * step
            return cells.nearest(noisy[:, None])[:, 0]

        return outputs

    for outputs in (np.linspace(2.1, 2.2, 40), np.linspace(20.0, 22.0, 40)):
        cell = np.rint(outputs / step).astype(np.int64)
        ratio = log_chances(output_of(1.0), cell) - log_chances(output_of(-1.0), cell)
        assert ratio.max() * (1 + 1e-9) > 4.0
        assert ratio.max() <= scheme.guarantee.epsilon * (1 + 1e-5)


class Constant(PrivateStream):
    """One word everywhere: the smallest and the largest draws of every sampler."""

    word = 0

    def words64(self, *, lane, start, count):
        if lane & 0xFFFF > 3:  # rejection goes on until the stream is random
            return super().words64(lane=lane, start=start, count=count)
        return np.full(count, self.word, dtype=np.uint64)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        *((f"{law}+sdq", {}) for law in ("laplace", "t")),
        *(("jopeq", {}), ("laplace+sdq", {"epsilon": 60.0})),
        *(("t+sdq", {"epsilon": epsilon, "nu": 2.05}) for epsilon in (80.0, 200.0)),
    ],
)
@pytest.mark.parametrize("lattice", ["Z", "A2", "D4", "E8", ((1.0, 0.3), (0.0, 1.2))], ids=str)
def test_no_noise_makes_an_update_be_refused(name, parameters, lattice):
    """Whether something is sent must not depend on update or noise, at the finest step either."""
    scheme = finest(name, lattice, 1.0, **parameters)
    words = (0, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
    for word, value in itertools.product(words, (-1e30, 0.0, 1.0)):
        noise = Constant()
        noise.word = word
        payload = scheme.encode(np.full(scheme.dimension, value), noise=noise)
        assert np.isfinite(scheme.decode(payload)).all()


@pytest.mark.parametrize(("epsilon", "rate"), [(4.0, 1.0), (4.0, 2.0), (1.0, 2.0), (2.0, 3.0)])
def test_no_letter_tells_more_than_epsilon(epsilon, rate):
    """Exactly, letter by letter, over a grid of dithers and all pairs of inputs."""
    scheme = jopeq.scheme("laplace+sdq", epsilon=epsilon, rate=rate)
    step, letters = scheme.cells.step, scheme.codebook.letters
    edges = (np.arange(1, letters) - letters / 2) * step
    law = stats.laplace(scale=2 / epsilon)
    x = np.linspace(-1, 1, 41)
    worst = 0.0
    for dither in np.linspace(-step / 2, step / 2, 41):
        shifted = edges[None, :] - dither - x[:, None]
        below = np.hstack((np.zeros((41, 1)), law.cdf(shifted), np.ones((41, 1))))
        above = np.hstack((np.ones((41, 1)), law.sf(shifted), np.zeros((41, 1))))
        upper = shifted.mean(axis=0) > 0  # differences of the tail that is small
        first = np.where(np.append(upper, True), -np.diff(above), np.diff(below))
        worst = max(worst, float(np.log(first.max(axis=0) / first.min(axis=0)).max()))
    assert worst <= epsilon * (1 + 1e-9)
    assert worst == pytest.approx(epsilon, rel=1e-6) or not scheme.guarantee.is_exact


@pytest.mark.parametrize("name", ["laplace+sdq", "jopeq"])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_the_decoded_error_has_its_law_for_every_input(epsilon, name, assert_same_law, assert_mean):
    """Laplace plus a uniform; JoPEQ has the variance of its target."""
    scheme = jopeq.scheme(name, epsilon=epsilon, rate=8.0, gamma=100.0, clip=1.0)
    step, source = scheme.cells.step, np.random.default_rng(0)
    expected = source.laplace(scale=2 / epsilon, size=40_000)
    expected += source.uniform(-step / 2, step / 2, 40_000)
    for number, x in enumerate((-1.0, 0.0, 0.6)):
        noise = PrivateStream.reproducible(bytes([number]) * 32)
        payload = scheme.encode(np.full(40_000, x), seed=bytes([number + 7]) * 32, noise=noise)
        off = scheme.decode(payload).astype(np.float64) - x
        if name == "laplace+sdq":
            assert_same_law(off, expected)
        else:
            assert_mean(off, 0.0)
            assert_mean(off**2, 2 * (2 / epsilon) ** 2)


# ε asked for, rate, ε against the server at the paper's γ
PUBLISHED = [
    (4.0, 1.0, 10.12), (4.0, 2.0, 8.04), (4.0, 3.0, 5.19), (4.0, 4.0, 4.41),
    (3.0, 1.0, 4.29), (3.0, 2.0, 4.01), (3.0, 3.0, 3.43), (3.0, 4.0, 3.17),
]  # fmt: skip


def channel(epsilon, rate, dither, x):
    """P(letter | x, dither), from the paper alone: matched Laplace noise, γ = 2R + 1/ε."""
    letters = round(2**rate)
    step = 2 * (2 * rate + 1 / epsilon) / letters
    scale = math.sqrt(((2 / epsilon) ** 2 * 2 - step**2 / 12) / 2)
    edges = [(i - letters / 2) * step - dither - x for i in range(1, letters)]

    def below(z):
        return math.exp(z / scale) / 2 if z < 0 else 1 - math.exp(-z / scale) / 2

    def between(low, high):
        # mirror what lies above 0, so that the small tail is never a difference of ones
        return below(high) - below(low) if high <= 0 or low < 0 else below(-low) - below(-high)

    inner = [between(a, b) for a, b in itertools.pairwise(edges)]
    return np.array([below(edges[0]), *inner, below(-edges[-1])])


@pytest.mark.parametrize(("epsilon", "rate", "server"), PUBLISHED)
def test_the_same_from_the_probabilities_of_every_letter(epsilon, rate, server):
    letters = round(2**rate)
    step = 2 * (2 * rate + 1 / epsilon) / letters
    worst = 0.0
    for dither in np.linspace(-step / 2, step / 2, 65):
        rows = [channel(epsilon, rate, float(dither), x) for x in np.linspace(-1, 1, 9).tolist()]
        table = np.array(rows)
        np.testing.assert_allclose(table.sum(axis=1), 1.0, rtol=1e-12)
        worst = max(worst, float(np.log(table.max(axis=0) / table.min(axis=0)).max()))
    assert worst == pytest.approx(server, abs=0.005)
    scheme = jopeq.scheme("jopeq", epsilon=epsilon, rate=rate)
    assert scheme.guarantee.is_exact
    assert worst == pytest.approx(scheme.guarantee.epsilon, rel=1e-6)


@pytest.mark.parametrize(("epsilon", "rate"), [(4.0, 1.0), (4.0, 2.0), (2.0, 2.0)])
@pytest.mark.parametrize("x", [-1.0, 0.3])
def test_the_bytes_have_those_probabilities(epsilon, rate, x, assert_counts):
    """The letters of one dither value, over many noises."""
    scheme = jopeq.scheme("jopeq", epsilon=epsilon, rate=rate, clip=1.0)
    count = 60_000
    stream = PrivateStream.reproducible(bytes(range(32)))
    dither = 0.21 * scheme.cells.step
    noisy = x + scheme.noise.sample(stream, 0, count) + dither
    letters, _ = scheme.codebook.quantize(noisy)
    expected = count * channel(epsilon, rate, dither, x)
    seen = np.bincount(letters, minlength=len(expected))
    is_common = expected >= 5
    assert seen[~is_common].sum() <= 40
    assert_counts(
        np.append(seen[is_common], seen[~is_common].sum() + 5),
        np.append(expected[is_common], expected[~is_common].sum() + 5),
    )


def test_theorem_iii_3_has_no_noise_and_no_privacy():
    scheme = jopeq.scheme("jopeq", epsilon=4.0, rate=1.0, gamma=3.0)
    assert scheme.noise is None
    assert scheme.guarantee.epsilon == math.inf
    assert scheme.guarantee.nominal == 4.0
    assert "no privacy" in str(scheme.guarantee)
    assert "no noise is added" in str(scheme.guarantee)
    noises = [PrivateStream.reproducible(bytes([n]) * 32) for n in range(3)]
    assert len({scheme.encode(np.ones(99), seed=bytes(32), noise=n) for n in noises}) == 1
