"""The exact ε of the discrete channel: the design's numbers, tails, grid, adversaries."""

import math

import numpy as np
import pytest
from scipy import special, stats

from jopeq import scheme
from jopeq.analysis import exact
from jopeq.analysis.exact import exact_epsilon, log_channel, log_ratio
from jopeq.entries.quantized import log_interval
from jopeq.noise import Laplace, MultivariateT
from jopeq.random.streams import SharedStream

# By ε and R: what the paper's scheme spends with the paper's γ, DESIGN.md section 6
SPENT = {
    4.0: {1.0: "10.12", 2.0: "8.04", 3.0: "5.19", 4.0: "4.41"},
    3.0: {1.0: "4.29", 2.0: "4.01", 3.0: "3.43", 4.0: "3.17"},
}


SUBTRACTIVE = [  # scalar schemes whose dither the decoder subtracts
    *(scheme("sdq", rate=rate) for rate in (2.0, math.log2(3))),
    *(scheme("jopeq", epsilon=4.0, rate=rate) for rate in (1.0, 2.0, 4.0)),
    scheme("jopeq", epsilon=4.0, rate=2.0, law="t"),
    scheme("laplace+sdq", epsilon=2.0, rate=3.0),
    *(scheme("response", epsilon=4.0, rate=rate) for rate in (1.0, 2.0, 3.0)),
    *(scheme("response", epsilon=e, rate=rate) for e, rate in ((3.0, 3.0), (6.0, 4.0))),
]


WITH_PROOF = [  # probabilities that are integers, or noise that is all there is
    *(
        scheme("laplace+sdq", epsilon=epsilon, rate=rate)
        for epsilon in (0.5, 1.0, 2.0, 4.0, 8.0)
        for rate in (1.0, 2.0, math.log2(5), 4.0, 6.0)
    ),
    *(scheme("response", epsilon=e, rate=r) for e in (0.5, 1.0, 2.0, 4.0) for r in (1.0, 2.0, 3.0)),
    *(scheme("mvu", epsilon=epsilon, rate=2.0) for epsilon in (1.0, 4.0)),
]


def spec(value):
    return value.spec


class EveryDither(SharedStream):
    """Word i is i: 65,536 samples meet every dither once."""

    __slots__ = ()

    def words16(self, *, lane, start, count):
        return np.arange(start, start + count).astype(np.uint16)


@pytest.mark.parametrize("asked", SPENT)
def test_the_papers_scheme_spends_what_the_design_says(asked):
    for rate, spent in SPENT[asked].items():
        found = exact_epsilon(scheme("jopeq", epsilon=asked, rate=rate))
        assert f"{found.server:.2f}" == spent


def test_without_noise_there_is_no_epsilon():
    for built in (scheme("none"), scheme("sdq", rate=1.0), scheme("dq", rate=2.0)):
        found = exact_epsilon(built)
        assert found.server == found.decoded == math.inf
    for name in ("laplace", "t"):  # as private as its law
        built = scheme(name, epsilon=3.0, **({} if name == "laplace" else {"size": 1}))
        found = exact_epsilon(built)
        assert found.server == found.decoded == found.network == built.guarantee.epsilon
        assert found.server == pytest.approx(3.0, rel=1e-9)
    lattice = scheme("jopeq", epsilon=4.0, rate=2.0, lattice="D4")
    for built in (lattice, scheme("t", epsilon=4.0)):  # lattices are left to the proof
        assert exact_epsilon(built) is None


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
@pytest.mark.parametrize("rate", [1.0, 2.0, 3.0])
def test_the_regime_of_theorem_iii_3_begins_at_the_square_root_of_24(epsilon, rate):
    """γε/2^R ≥ √24: the dither's variance reaches the target's and no noise is added."""
    border = math.sqrt(24) * 2**rate / epsilon
    inside = scheme("jopeq", epsilon=epsilon, rate=rate, gamma=border * 1.001)
    outside = scheme("jopeq", epsilon=epsilon, rate=rate, gamma=border * 0.999)
    assert inside.noise is None
    assert exact_epsilon(inside).server == math.inf
    assert epsilon < exact_epsilon(outside).server < math.inf


@pytest.mark.parametrize(("gamma", "is_exact"), [(0.5, False), (1.5, False), (3.0, True)])
def test_a_bound_is_exact_only_where_a_letter_lies_beyond_all_inputs(gamma, is_exact):
    narrow = scheme("laplace+sdq", epsilon=4.0, rate=1.0, gamma=gamma)
    assert narrow.guarantee.is_exact == is_exact
    assert (exact_epsilon(narrow).server > 4.0 - 1e-6) == is_exact


@pytest.mark.parametrize("proven", WITH_PROOF, ids=spec)
def test_schemes_with_a_proof_spend_what_it_says(proven):
    found = exact_epsilon(proven)
    assert found.server == pytest.approx(proven.guarantee.epsilon, rel=1e-12)
    assert found.server <= proven.epsilon * (1 + 1e-12)
    for dither in (-0.4999, -0.25, 0.0, 0.123, 0.4999):
        total = np.exp(log_channel(proven, dither)).sum(axis=1)
        assert total == pytest.approx(np.ones(len(total)), abs=1e-12)


@pytest.mark.parametrize("built", SUBTRACTIVE, ids=spec)
def test_letter_and_dither_can_be_read_off_the_decoded_value(built):
    """The map (letter, dither) → decoded value is injective over all 65,536 dithers.

    So the likelihood of a decoded value is the likelihood of one letter and one dither, and the
    observer of the decoded value has the server's ε.
    """
    every = EveryDither(bytes(32))
    size = getattr(built.codec.coder, "letters", None)
    letters = np.arange(-8, 9)[:, None] if size is None else np.arange(size)
    rows = [np.repeat(letter[None], 1 << 16, axis=0) for letter in letters]
    decoded = [built.codec.to_samples(row, 0, every)[:, 0] for row in rows]
    assert len(np.unique(decoded)) == len(letters) << 16
    found = exact_epsilon(built)
    assert found.decoded == found.server


def test_a_dither_that_stays_in_is_averaged_over():
    """What ``dq`` decodes is the letter alone: the same for every dither."""
    built = scheme("dq", rate=2.0)
    every = EveryDither(bytes(32))
    decoded = [built.codec.to_samples(np.full(1 << 16, k), 0, every)[:, 0] for k in range(4)]
    assert len(np.unique(decoded)) == 4
    found = exact_epsilon(built)
    assert found.decoded == found.network


@pytest.mark.parametrize("built", [*SUBTRACTIVE, *WITH_PROOF, scheme("dq", rate=2.0)], ids=spec)
def test_the_network_knows_less_than_the_server(built):
    found = exact_epsilon(built)
    assert found.network <= found.server * (1 + 1e-9)
    assert found.server <= built.guarantee.epsilon * (1 + 1e-9)


def test_the_key_of_a_one_bit_payload_protects():
    found = exact_epsilon(scheme("jopeq", epsilon=4.0, rate=1.0))
    # both ends, averaged over the dither: the mean of F over the interval of length Δ = 2.25
    law, step = scheme("jopeq", epsilon=4.0, rate=1.0).noise, 2.25
    u = (np.arange(200_000) + 0.5) / 200_000 - 0.5
    upper = 1.0 - law.distribution(-(1.0 + u * step)).mean()
    assert found.network == pytest.approx(math.log(upper / (1 - upper)), abs=1e-4)


@pytest.mark.parametrize(
    "built",
    [
        *(scheme("jopeq", epsilon=4.0, rate=rate) for rate in (1.0, 4.0)),
        scheme("laplace+sdq", epsilon=4.0, rate=1.0),
        scheme("jopeq", epsilon=4.0, rate=2.0, law="t"),
        scheme("jopeq", epsilon=2.0, rate=2.0),
        scheme("response", epsilon=4.0, rate=3.0),
        scheme("mvu", epsilon=4.0, rate=2.0),
    ],
    ids=spec,
)
def test_a_finer_grid_changes_nothing(built, monkeypatch):
    coarse = exact_epsilon(built)
    monkeypatch.setattr(exact, "INPUTS", np.linspace(-1.0, 1.0, 65))
    monkeypatch.setattr(exact, "_DITHERS", (np.arange(-256, 256) + 0.5) / 512.0)
    fine = exact_epsilon(built)
    assert fine.server == pytest.approx(coarse.server, abs=1e-6)
    assert fine.decoded == pytest.approx(coarse.decoded, abs=1e-6)
    assert fine.network == pytest.approx(coarse.network, abs=5e-5)  # averaged, so four digits


def log_t_tail(x):
    """P(T > x) = ½·I(ν/2, ½) at ν/(ν + x²), of ν = 6."""
    return np.log(0.5 * special.betainc(3.0, 0.5, 6.0 / (6.0 + x * x)))


LOG_TAILS = {  # of x deviations
    Laplace(0.5): lambda x: -x + math.log(0.5),
    MultivariateT(6.0, 0.25, 1): log_t_tail,
    MultivariateT(2.5, 0.25, 1): lambda x: stats.t.logsf(x, 2.5),
}


@pytest.mark.parametrize("law", LOG_TAILS, ids=str)
def test_log_interval_of_half_lines_partitions_and_tails(law):
    infinite = np.array([np.inf])
    assert log_interval(law, -infinite, infinite) == pytest.approx(0.0, abs=1e-15)
    edges = np.array([-3.0, -0.2, 0.0, 0.7, 2.0])
    below = log_interval(law, np.full(5, -np.inf), edges)
    assert below == pytest.approx(np.log(law.distribution(edges)), rel=1e-12)
    above = log_interval(law, edges, np.full(5, np.inf))
    assert above == pytest.approx(np.log(law.distribution(-edges)), rel=1e-12)
    pieces = log_interval(law, np.append(-np.inf, edges), np.append(edges, np.inf))
    assert np.exp(pieces).sum() == pytest.approx(1.0, abs=1e-14)
    low = np.array([0.0, 1.0, 10.0, 50.0, 300.0, 1e6, 1e9])  # where probabilities are no floats
    for high in (low + 0.185, 2.0 * low + 1.0):
        upper, lower = LOG_TAILS[law](2 * low), LOG_TAILS[law](2 * high)
        expected = upper + np.log1p(-np.exp(lower - upper))
        found = log_interval(law, low, high)
        assert found == pytest.approx(expected, rel=1e-12)
        assert np.array_equal(found, log_interval(law, -high, -low))


@pytest.mark.parametrize("fine", [{"rate": 13.0}, {"rate": 20.0}], ids=str)
@pytest.mark.parametrize("name", ["laplace+sdq", "t+sdq"])
def test_more_cells_than_are_listed_lose_no_probability(name, fine):
    built = scheme(name, epsilon=4.0, **fine)
    channel = log_channel(built, 0.0)
    assert channel.shape[1] <= 4097
    assert np.exp(channel).sum(axis=1) == pytest.approx(1.0, abs=1e-4)  # of t, a tail is beyond
    epsilon = log_ratio(channel)
    assert 3.8 < epsilon <= built.guarantee.epsilon * (1 + 1e-6)
