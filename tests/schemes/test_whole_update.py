"""``response`` for whole updates: the choice, exact ε of real payloads, the computed error."""

from __future__ import annotations

import hashlib
import itertools
import math
import pickle
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest

import jopeq
from jopeq.errors import PayloadError, UpdateError
from jopeq.privacy.ledger import Ledger
from jopeq.random.rational import log_ceiling
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.schemes import scheme, scheme_from_spec
from jopeq.schemes.channelled import Response
from jopeq.schemes.whole_update import (
    CLAMPED_CHANCE,
    UpdateResponse,
    counts_to_try,
    expected_errors,
)
from jopeq.wire.payload import Header, open_payload, seal
from jopeq.wire.samples import rotate_block, unrotate_block


def make(**changes):
    return UpdateResponse(**{"epsilon": 8.0, "rate": 2.0, "clip": 1.0, **changes})


def seeds(label, count):
    for number in range(count):
        yield hashlib.sha256(f"{label} {number}".encode()).digest()


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 30.0, 300.0])
@pytest.mark.parametrize("dimension", [1, 2, 9, 64, 1000])
@pytest.mark.parametrize("rate", [1.0, 3.0])
def test_k_is_the_best_there_is(epsilon, dimension, rate):
    choice = make(epsilon=epsilon, rate=rate).choice_for(dimension)
    n = choice.padded
    counts, letters = np.arange(1, dimension + 1), np.arange(2, 2 ** int(rate) + 1)
    every = expected_errors(epsilon, dimension, n, counts[:, None], letters[None, :])
    ours = every[choice.kept - 1, choice.response.finite_channel.letters - 2]
    assert ours <= every.min() * 1.001
    chosen = make(epsilon=epsilon, rate=rate, k=choice.kept)
    assert chosen.choice_for(dimension) == choice
    if dimension >= 64:  # where coordinates look Gaussian, the two computations agree
        computed = make(epsilon=epsilon, rate=rate).expected_error(dimension)
        assert ours == pytest.approx(computed, rel=0.02)


def test_counts_are_dense_ascending_and_bounded():
    for epsilon, dimension in [(0.1, 5), (3.3, 100), (1000.0, 10**6), (1e300, 7), (1e9, 10**9)]:
        tried = counts_to_try(epsilon, dimension)
        most = max(1, math.floor(min(2 * epsilon, dimension)))
        assert (tried[0], tried[-1]) == (1, most)
        assert all(0 < b - a <= max(1, a / 32) for a, b in itertools.pairwise(tried))


def reference_choice(seed, n, k):
    """The documented recipe, one word at a time."""
    stream, drawn, place = SharedStream(seed), [], 0
    wanted = n - k if 2 * k > n else k
    while len(drawn) < wanted:
        word = int(stream.words64(lane=2, start=place, count=1)[0]) % n
        place += 1
        if word not in drawn:
            drawn.append(word)
    return sorted(set(range(n)) - set(drawn)) if 2 * k > n else sorted(drawn)


@pytest.mark.parametrize(("dimension", "k"), [(1, 1), (2, 2), (7, 3), (8, 8), (60, 33), (60, 32)])
def test_kept_coordinates_follow_the_recipe(dimension, k):
    choice = make(k=k).choice_for(dimension)
    for seed in seeds("choice", 20):
        chosen = choice.choose(SharedStream(seed)).tolist()
        assert chosen == reference_choice(seed, choice.padded, k)
        assert len(set(chosen)) == k


@pytest.mark.parametrize("k", [2, 6])
def test_every_set_of_coordinates_is_equally_likely(k, assert_counts):
    choice = make(k=k).choice_for(8)
    sets = dict.fromkeys(itertools.combinations(range(8), k), 0)
    for seed in seeds("sets", 3000):
        sets[tuple(choice.choose(SharedStream(seed)).tolist())] += 1
    assert_counts(list(sets.values()))


def test_the_bound_is_the_union_bound_over_kept_coordinates():
    for dimension, k in [(10, 1), (1000, 3), (1000, 900)]:
        choice = make(k=k).choice_for(dimension)
        tail = 2 * k * math.exp(-(choice.bound**2) * choice.padded / 2)
        assert choice.bound == 1.0 or tail == pytest.approx(CLAMPED_CHANCE)


SEED = bytes(range(32))


def coded(coder, update, label, count):
    """``count`` decoded updates, seeds and noise fixed."""
    return np.array(
        [
            coder.decode(
                coder.encode(update, seed=seed, noise=PrivateStream.reproducible(seed[::-1]))
            )
            for seed in seeds(label, count)
        ],
        dtype=np.float64,
    )


# Names and parameters


def test_the_unit_chooses_the_class_and_the_specification_keeps_it():
    whole = scheme("response", unit="update", epsilon=8, rate=2, clip=1)
    assert type(whole) is UpdateResponse
    assert whole == make()
    assert whole.name == "response"
    assert '"unit":"update"' in whole.spec
    again = scheme_from_spec(whole.spec)
    assert (again, hash(again), again.spec) == (whole, hash(whole), whole.spec)
    assert pickle.loads(pickle.dumps(whole)) == whole
    single = scheme("response", epsilon=4.0, rate=2.0)
    assert type(single) is Response
    assert scheme("response", unit="sample", epsilon=4.0, rate=2.0) == single
    assert "unit" not in single.spec


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clip": None}, "needs clip"),
        ({"unit": "client"}, "unit must be"),
        ({"rotate": True}, "drop rotate"),
        ({"per": "tensor"}, "per='tensor'"),
        ({"center": True}, "center"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": 1e-12}, "raise epsilon"),
        ({"k": 0}, "k must be"),
        ({"k": 2.5}, "k must be a whole number"),
        ({"k": True}, "k must be a whole number"),
        ({"k": 9, "max_entries": 8}, "lower k"),
        ({"rate": 0.5}, "rate must be"),
    ],
)
def test_impossible_parameters_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make(**changes)


def test_unknown_units_and_parameters_name_the_remedy():
    with pytest.raises(ValueError, match="'sample' or 'update'"):
        scheme("response", unit="client", epsilon=4.0, rate=2.0, clip=1.0)
    with pytest.raises(ValueError, match=r"no parameter 'levels'.*max_entries"):
        scheme("response", unit="update", epsilon=4.0, rate=2.0, clip=1.0, levels=2)


# Privacy: the law of the real payload, from every private word that matters


class FixedWords(PrivateStream):
    """Gives the words it was told to."""

    def __init__(self, words):
        super().__init__()
        self.words = np.array(words, dtype=np.uint32)

    def words32(self, *, lane, start, count):
        assert (lane, start, count) == (0, 0, len(self.words))
        return self.words


def law(coder, update, seed):
    """P(payload) as exact fractions: a letter changes only where a private word crosses an edge."""
    choice = coder.choice_for(update.size)
    edges = sorted({0, *map(int, choice.response.finite_channel.thresholds.flat)} - {1 << 32})
    masses = np.diff([*edges, 1 << 32])
    chances = {}
    for picks in itertools.product(range(len(edges)), repeat=choice.kept):
        noise = FixedWords([edges[pick] for pick in picks])
        payload = coder.encode(update, seed=seed, noise=noise)
        chance = math.prod(Fraction(int(masses[pick]), 1 << 32) for pick in picks)
        chances[payload] = chances.get(payload, 0) + chance
    assert sum(chances.values()) == 1
    return chances


def largest_log_ratio(laws):
    payloads = set().union(*laws)
    worst = Fraction(1)
    for payload in payloads:
        column = [one.get(payload, Fraction(0)) for one in laws]
        assert min(column) > 0, "a payload that some update can never make"
        worst = max(worst, max(column) / min(column))
    return log_ceiling(worst)


def inputs(dimension):
    """The ball's poles, its corners and beyond: the guarantee asks nothing of the update."""
    unit = np.eye(dimension)
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=dimension)))
    return [*unit, *-unit, *(signs / math.sqrt(dimension)), np.zeros(dimension), 1e6 * unit[0]]


@pytest.mark.parametrize(
    ("dimension", "k", "epsilon", "rate"),
    [
        (1, 1, 2.0, 2.0),
        (2, 1, 4.0, 1.0),
        (2, 2, 4.0, 2.0),
        (3, 1, 4.0, 2.0),
        (3, 2, 1.0, 1.0),
        (4, 1, 0.5, 2.0),
        (4, 2, 3.0, 1.6),
        (4, 2, 100.0, 1.0),
    ],
)
def test_no_two_updates_are_told_apart_by_more_than_epsilon(dimension, k, epsilon, rate):
    coder = make(epsilon=epsilon, rate=rate, k=k)
    stated = coder.guarantee_for(dimension)
    assert stated.epsilon <= epsilon
    assert stated.epsilon <= coder.guarantee.epsilon
    worst = 0.0
    for seed in seeds("ratio", 3):
        found = largest_log_ratio([law(coder, update, seed) for update in inputs(dimension)])
        assert found <= stated.epsilon
        worst = max(worst, found)
    assert stated.is_exact == (k == 1)
    if k == 1:
        assert worst == stated.epsilon  # attained: nothing is wasted


def test_the_bound_is_attained_when_the_corners_fit_the_ball():
    coder = make(epsilon=4.0, rate=1.0, k=2)
    choice, stated = coder.choice_for(128), coder.guarantee_for(128)
    assert choice.kept * choice.bound**2 <= 1.0
    assert stated.is_exact
    shared = SharedStream(SEED)
    turned = np.zeros(128)
    turned[choice.choose(shared)] = choice.bound
    corner = unrotate_block(turned, 0, shared)
    assert np.linalg.norm(corner) <= 1.0
    found = largest_log_ratio([law(coder, update, SEED) for update in (corner, -corner)])
    assert stated.epsilon - 1e-12 < found <= stated.epsilon <= 4.0


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 8.0, 100.0, 1e4])
@pytest.mark.parametrize("dimension", [1, 5, 300])
def test_what_is_spent_never_exceeds_what_was_asked_for(epsilon, dimension):
    for k in (None, 1, 3):
        if k is not None and k > dimension:
            continue
        coder = make(epsilon=epsilon, rate=3.0, k=k)
        choice, stated = coder.choice_for(dimension), coder.guarantee_for(dimension)
        each = choice.response.guarantee.epsilon
        assert choice.kept * Fraction(each) <= Fraction(stated.epsilon) <= Fraction(epsilon)
        assert (stated.unit, stated.adversary, stated.nominal) == ("update", "server", epsilon)
        assert coder.guarantee.epsilon >= stated.epsilon


def test_guarantees_compose_over_rounds_and_not_over_entries():
    coder = make(epsilon=0.5)
    assert coder.guarantee.unit == "update"
    with pytest.raises(ValueError, match="of one update"):
        coder.guarantee.for_update(1000)
    assert coder.guarantee.for_client(1000, 10).epsilon == 5.0
    sharp = coder.guarantee_for(1000)
    assert sharp.for_client(1000, 1000, delta=1e-6).epsilon < 500.0
    assert coder.guarantee_for(0).epsilon == 0.0
    ledger = Ledger(budget=1.0)
    ledger.encode(coder, np.zeros(10))
    ledger.encode(coder, np.zeros(10))
    with pytest.raises(jopeq.JoPEQError, match="budget"):
        ledger.encode(coder, np.zeros(10))


def test_the_norm_does_not_travel():
    short, long = (make().encode(size * np.ones(50), seed=SEED) for size in (1e-3, 1e3))
    ours = open_payload(short)[0]
    assert ours == open_payload(long)[0]
    assert ours.scales == ()


# Error: unbiased, and as large as computed


DRAWS = [400, pytest.param(10_000, marks=pytest.mark.slow)]


@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize(
    ("dimension", "changes"),
    [
        (1, {"epsilon": 1.0}),
        (5, {"k": 2, "rate": 1.0}),
        (6, {"k": 6, "epsilon": 12.0}),
        (100, {"epsilon": 64.0, "rate": 4.0}),
    ],
)
def test_decoded_updates_are_unbiased(dimension, changes, draws, assert_mean):
    coder = make(clip=2.0, **changes)
    update = np.random.default_rng(dimension).normal(size=dimension)
    update *= 1.9 / np.linalg.norm(update)
    decoded = coded(coder, update, "mean", draws)
    assert_mean(decoded, update)
    # along the update all noise but one direction's is left out: a sharper verdict
    assert_mean(decoded @ update, update @ update)


@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize(
    ("dimension", "changes", "norm"),
    [
        (1, {"epsilon": 2.0}, 1.0),
        (5, {"epsilon": 60.0, "k": 2, "rate": 4.0}, 1.0),  # sampling alone
        (5, {"epsilon": 60.0, "k": 5, "rate": 8.0}, 0.5),  # the last of it: n is 8
        (33, {"epsilon": 8.0, "rate": 1.0}, 0.3),
        (64, {"epsilon": 64.0, "k": 64, "rate": 2.0}, 1.0),  # the channel alone
        (200, {"epsilon": 64.0, "rate": 4.0}, 1.0),
    ],
)
def test_the_error_is_the_one_computed(dimension, changes, norm, draws, assert_mean):
    coder = make(clip=0.5, **changes)
    generator = np.random.default_rng(dimension)
    errors = []
    for seed in seeds("error", draws):
        update = generator.normal(size=dimension)
        update *= norm * 0.5 / np.linalg.norm(update)
        payload = coder.encode(update, seed=seed, noise=PrivateStream.reproducible(seed[::-1]))
        errors.append(np.square(coder.decode(payload) - update).sum() / 0.25)
    expected = coder.expected_error(dimension, norm)
    assert_mean(errors, expected)
    assert np.std(errors) < 2.5 * expected  # so that five standard errors prove something


@pytest.mark.parametrize(("dimension", "k"), [(2, 1), (3, 2), (5, 2), (8, 3), (7, 7), (8, 8)])
def test_the_error_of_sampling_is_exact(dimension, k):
    """Over all sets of k coordinates, for one choice of signs; the channel adds next to nothing."""
    coder, shared = make(epsilon=400.0, rate=8.0, k=k), SharedStream(SEED)
    padded = np.zeros(coder.choice_for(dimension).padded)
    padded[:dimension] = np.random.default_rng(dimension).normal(size=dimension)
    padded /= np.linalg.norm(padded)
    turned = rotate_block(padded, 0, shared)
    errors = []
    for kept in map(list, itertools.combinations(range(len(padded)), k)):
        sent = np.zeros_like(turned)
        sent[kept] = turned[kept] * len(padded) / k
        errors.append(np.square((unrotate_block(sent, 0, shared) - padded)[:dimension]).sum())
    assert coder.expected_error(dimension) == pytest.approx(np.mean(errors), abs=1e-3)


@pytest.mark.parametrize("draws", DRAWS)
def test_the_error_of_two_levels_is_the_same_for_a_spike(draws, assert_mean):
    """Nothing is averaged over directions when the channel's error is the same everywhere."""
    coder = make(epsilon=8.0, rate=1.0, k=3)
    spike = np.zeros(20)
    spike[7] = 1.0
    errors = np.square(coded(coder, spike, "spike", draws) - spike).sum(axis=1)
    assert_mean(errors, coder.expected_error(20))


def test_clamped_coordinates_and_clipped_updates_are_counted():
    coder = make(k=3)
    shared = SharedStream(SEED)
    choice = coder.choice_for(1024)
    turned = np.zeros(1024)
    turned[choice.choose(shared)[1]] = 0.99
    update = unrotate_block(turned, 0, shared)
    counted = coder.encode(update, seed=SEED, statistics=True)[1]
    assert (counted.samples, counted.clipped, counted.overloaded) == (3, 1, 0)
    counted = coder.encode(3 * update, seed=SEED, statistics=True)[1]
    assert (counted.clipped, counted.overloaded) == (1, 1)
    counted = coder.encode(np.full(1024, 1 / 32), seed=SEED, statistics=True)[1]
    assert (counted.clipped, counted.overloaded) == (0, 0)


def test_long_updates_keep_their_direction(assert_mean):
    coder = make(epsilon=30.0, rate=4.0)
    update = np.array([3.0, -4.0, 0.0, 12.0])
    assert_mean(coded(coder, update, "long", 400), update / 13.0)


# Payloads


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0), (5,), (2, 3, 4)])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 100.0])
def test_shapes_come_back(shape, epsilon):
    coder = make(epsilon=epsilon)
    for update in (np.zeros(shape), np.ones(shape, dtype=np.float32)):
        payload, counted = coder.encode(update, statistics=True)
        back = coder.decode(payload)
        assert (back.shape, back.dtype) == (shape, np.float32)
        assert np.isfinite(back).all()
        assert 8 * counted.body_bytes == coder.bits_for(update.size)
        assert counted.body_bytes <= (2.0 * counted.samples + 7) / 8


def test_states_travel():
    coder = make(epsilon=2000.0, rate=8.0, clip=4.0)
    state = {
        "weight": np.linspace(-1, 1, 48).reshape(6, 8),
        "steps": np.array(7),
        "bias": np.linspace(0, 1, 16, dtype=np.float32),
    }
    back = jopeq.decode_state(coder, jopeq.encode_state(coder, state), like=state)
    assert back["steps"] == 7
    np.testing.assert_allclose(back["weight"], state["weight"], atol=0.3)
    np.testing.assert_allclose(back["bias"], state["bias"], atol=0.3)
    nothing = {"steps": np.array(7)}
    assert jopeq.decode_state(coder, jopeq.encode_state(coder, nothing), like=nothing) == nothing


def test_the_bytes_stay_the_same():
    coder = make(epsilon=64.0, rate=2.0)
    update = np.arange(20.0) / 60
    assert coder.choice_for(20).kept == 12
    payload = coder.encode(update, seed=SEED, noise=PrivateStream.reproducible(SEED[::-1]))
    assert bytes(open_payload(payload)[1]).hex() == "9a5959"
    first = [-0.7395511269569397, -0.7011497616767883, -0.9011780619621277]
    np.testing.assert_allclose(coder.decode(payload)[:3], first, rtol=1e-6)


def test_too_few_and_too_many_entries_are_refused_on_both_ends():
    with pytest.raises(UpdateError, match=r"k=5.*3 entries"):
        make(k=5).encode(np.zeros(3))
    with pytest.raises(UpdateError, match="max_entries=8"):
        make(max_entries=8).encode(np.zeros(9))
    assert make(k=5).decode(make(k=5).encode(np.zeros(0))).shape == (0,)
    for coder, shape in [(make(k=5), (3,)), (make(), (1 << 20, 1 << 20)), (make(), (0,))]:
        header = Header(scheme=coder.spec, names=("",), shapes=(shape,), seed=SEED)
        with pytest.raises(PayloadError):
            coder.decode(seal(header.to_bytes(), [b"\0"], None))


@pytest.mark.parametrize(("dimension", "times"), [(1 << 18, 3.6), ((1 << 18) + 1, 5.6)])
def test_decoding_needs_the_padded_row_and_the_result_alone(dimension, times):
    """8 bytes a padded entry and 4 a decoded one; it was 8 and 16 times the result."""
    coder = make()
    payload = coder.encode(np.full(dimension, 1e-3, np.float32))
    coder.decode(payload)  # the choice is kept
    tracemalloc.start()
    decoded = coder.decode(payload)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < times * decoded.nbytes


def test_altered_bodies_are_refused():
    coder = make(epsilon=64.0, rate=1.6)  # three letters: not every byte is a payload
    payload = coder.encode(np.ones(300), seed=SEED)
    header, body = open_payload(payload)
    assert coder.choice_for(300).response.finite_channel.letters == 3
    for wrong in (bytes(body)[:-1], bytes(body) + b"\0", b"\xff" * len(body)):
        with pytest.raises(PayloadError):
            coder.decode(seal(header.to_bytes(), [wrong], None))


def test_figures_per_kept_coordinate_are_those_of_a_large_update():
    coder = make(epsilon=16.0, rate=2.0)
    response = coder.choice_for(1 << 20).response
    assert coder.distortion == response.distortion
    assert coder.bits_per_entry == response.bits_per_entry <= 2.0
    assert coder.expected_error(0) == coder.bits_for(0) == 0
    with pytest.raises(ValueError, match="norm"):
        coder.expected_error(5, norm=1.5)
    with pytest.raises(ValueError, match="dimension"):
        coder.expected_error(-1)
