"""``sphere``: exact ratios, unbiased reports, the error of the closed form, total encoding."""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jopeq
from jopeq.analysis.exact import exact_epsilon
from jopeq.errors import UpdateError
from jopeq.random import normal
from jopeq.random.rational import exp_floor
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.sphere import sphere_codebook as codebook
from jopeq.sphere.sphere_plan import WORD, plan_for

# (ε, d, bits, draws): k = n, blocks with several members, one member, two lists
PLANS = [
    (1.0, 300, 4, 1 << 14),
    (4.0, 300, 6, 1 << 13),
    (8.0, 3000, 8, 1 << 13),
    (4.0, 2000, 2, 1 << 10),
    (14.0, 1000, 12, 1 << 13),
]


def generator(number: int) -> np.random.Generator:
    return np.random.default_rng(number)


def direction(dimension: int, number: int = 0) -> np.ndarray:
    found = generator(number).standard_normal(dimension)
    return found / np.linalg.norm(found)


def chances_of(update, plan, shared, client):
    """The exact chance of every index, as fractions of 1."""
    turned = codebook.rotate(codebook.into_ball(update)[None], plan, shared)
    (members,), (counts,) = codebook.weights(turned, plan, shared, np.array([client]))
    found = [Fraction(WORD - sum(counts), WORD * plan.codewords)] * plan.codewords
    for index, count in zip(members.tolist(), counts, strict=True):
        found[index] += Fraction(count, WORD)
    return found


def test_whatever_comes_goes_into_the_ball():
    for update, inside in (
        ([np.nan, 3.0, 4.0], [0.0, 0.6, 0.8]),
        ([1e200, 0.0, -1e200], [0.5**0.5, 0.0, -(0.5**0.5)]),
        ([np.inf, 1.0, np.nan], [1.0, 0.0, 0.0]),
        ([0.3, 0.0, 0.4], [0.3, 0.0, 0.4]),
    ):
        found = codebook.into_ball(np.array(update))
        assert np.allclose(found, inside, rtol=1e-12, atol=1e-12)


def hostile_updates(plan, shared):
    """Inputs in the ball, outside of it, and built by someone who knows the codebook."""
    d = plan.dimension
    yield np.zeros(d)
    yield np.eye(1, d)[0]
    yield -np.eye(1, d)[0]
    yield np.full(d, d**-0.5)
    yield np.full(d, 1e300)
    yield np.full(d, -1e-300)
    for number in range(4):
        found = direction(d, number)
        yield from (found, 1.0000001 * found, 0.3 * found, 5.0 * found)
    for block in range(min(3, plan.blocks)):  # all its length on one block
        turned = np.zeros(plan.padded, dtype=np.int64)
        turned[block * plan.block : (block + 1) * plan.block] = 1000 * direction(plan.block) * 4096
        found = codebook.decode_sum(turned, plan, shared)
        yield found / np.linalg.norm(found)


@pytest.mark.parametrize(("epsilon", "dimension", "bits", "draws"), PLANS)
def test_every_index_has_a_chance_between_the_two_bounds(epsilon, dimension, bits, draws):
    plan = plan_for(epsilon, dimension, bits, draws)
    lowest = Fraction(WORD - plan.most_sum, WORD * plan.codewords)
    highest = Fraction(WORD + plan.most_top, WORD * plan.codewords)
    assert highest / lowest == plan.ratio <= exp_floor(epsilon)
    assert epsilon - 1e-6 < plan.epsilon <= epsilon  # nothing is given away
    seen = []
    for client, shared in ((0, SharedStream(bytes(32))), (9, SharedStream(b"k" * 32))):
        for update in hostile_updates(plan, shared):
            chances = chances_of(update, plan, shared, client)
            assert sum(chances) == 1
            seen += [min(chances), max(chances)]
    assert lowest <= min(seen)
    assert max(seen) <= highest
    if plan.block == plan.padded:  # attained, but for the last digits of a weight
        assert float(max(seen) / min(seen)) == pytest.approx(math.exp(plan.epsilon), rel=1e-7)


@given(st.lists(st.integers(-(1 << 66), 1 << 66), min_size=4, max_size=4))
def test_any_counts_are_made_to_keep_the_promise(counts):
    plan = plan_for(4.0, 300, 6, 1 << 13)
    members = counts * (plan.combinations // 4) + counts[: plan.combinations % 4]
    allowed = plan.allow(members)
    total = sum(allowed)
    assert min(allowed) >= 0
    assert total <= plan.most_sum
    assert plan.codewords * max(allowed) - total <= plan.most_top


def test_the_plan_is_the_same_on_every_machine():
    table = normal.draws()
    assert len(table) == 1 << 16
    digest = hashlib.sha256(table.astype("<i2").tobytes()).hexdigest()
    assert digest == DRAWS_DIGEST
    found = [plan_for(e, d, b, n) for e, d, b, n in PLANS]
    assert hashlib.sha256(repr(found).encode()).hexdigest() == PLANS_DIGEST


DRAWS_DIGEST = "78edc2d467663e35cca6091c88533ea0bbee4b68d094881bcacaeebc3338b20a"
PLANS_DIGEST = "2b5c22a0ebcbb4ac170d9e68f4d4b8b60dcd2c00c76f98637bcb7945a60385c4"

UPDATES = {
    "dense": lambda d: direction(d),
    "sparse": lambda d: np.eye(1, d, 3)[0],
    "constant": lambda d: np.full(d, -(d**-0.5)),
    "zero": lambda d: np.zeros(d),
    "tiny": lambda d: 1e-6 * direction(d),
    "half": lambda d: 0.5 * direction(d, 1),
}


SMALL, LARGE = (4.0, 40, 1 << 10), (8.0, 600, 1 << 12)  # ε, dimension and draws


@pytest.mark.parametrize(
    ("kind", "case"), [*((kind, SMALL) for kind in UPDATES), ("sparse", LARGE), ("half", LARGE)]
)
def test_reports_are_unbiased_and_as_far_off_as_computed(kind, case):
    epsilon, dimension, draws = case
    scheme = jopeq.Sphere(epsilon=epsilon, clip=2.0, draws=draws, bits=6)
    update = 2.0 * UPDATES[kind](dimension)
    terms = scheme.round(dimension=dimension, seed=b"u" * 32)
    private = PrivateStream.reproducible(b"n" * 32)
    count = 1200
    plan, shared = terms.plan, terms.shared
    words = private.words64(lane=0, start=0, count=2 * count).reshape(count, 2)
    turned = codebook.rotate(update[None] / 2.0, plan, shared)
    errors, along, others = [], [], []
    target = update if np.any(update) else direction(dimension)
    across = direction(dimension, 7)
    for client in range(count):
        members, counts = codebook.weights(turned, plan, shared, np.array([client]))
        index = codebook.draw_indices(members, counts, plan, words[client])
        total = np.zeros(plan.padded, dtype=np.int64)
        codebook.add_codewords(np.array([client]), index, plan, shared, total)
        found = 2.0 * codebook.decode_sum(total, plan, shared) - update
        errors.append(float(found @ found))
        along.append(float(found @ target) / np.linalg.norm(target))
        others.append(float(found @ across))
    for projected in (along, others):
        sigma = np.std(projected) / math.sqrt(count)
        assert abs(np.mean(projected)) < 5.0 * sigma
    expected = 4.0 * scheme.expected_error(dimension, float(np.linalg.norm(update)) / 2.0)
    assert abs(np.mean(errors) - expected) < 5.0 * np.std(errors) / math.sqrt(count)


def test_draws_of_the_audit_are_drawn_as_reports_are():
    scheme = jopeq.Sphere(epsilon=8.0, clip=1.0, draws=1 << 12)
    terms, update = scheme.round(dimension=500, seed=b"s" * 32), direction(500)
    drawn = terms.draws(update, count=50, client=3, noise=PrivateStream.reproducible(bytes(32)))
    report = terms.report(update, client=3, noise=PrivateStream.reproducible(bytes(32)))
    assert int.from_bytes(report, "little") == drawn[0]
    assert len(report) == -(-scheme.bits_for(500) // 8)
    assert len(set(drawn.tolist())) > 1
    assert len(terms.draws(update, count=0)) == 0
    with pytest.raises(ValueError, match="501 entries"):
        terms.draws(np.zeros(501), count=2)


def test_scalar_and_state_updates_and_any_floats():
    scheme = jopeq.Sphere(epsilon=8.0, clip=1.0, draws=1 << 12)
    state = {"w": np.full((2, 3), 0.1, np.float32), "b": np.zeros(2, np.float32), "n": np.array(3)}
    hostile = [np.nan, np.inf, -np.inf, 1e300, 5e-324, 1e154]
    with np.errstate(all="raise"):
        for update, size in ((np.float64(0.5), 1), (state, 8), (np.array(hostile), 6)):
            report = scheme.round(dimension=size, seed=bytes(32)).report(update, client=0)
            assert len(report) == -(-scheme.bits_for(size) // 8)


def test_what_is_too_large_or_too_long_is_refused():
    scheme = jopeq.Sphere(epsilon=4.0, clip=1.0, max_entries=100, draws=1 << 12)
    with pytest.raises(UpdateError, match="max_entries"):
        scheme.round(dimension=101, seed=bytes(32))
    wide = jopeq.Sphere(epsilon=4.0, clip=1.0, draws=1 << 12)
    with pytest.raises(ValueError, match="dimension"):
        wide.round(dimension=0, seed=bytes(32))
    with pytest.raises(ValueError, match="seed"):
        wide.round(dimension=5, seed=b"short")


def test_the_audit_agrees_with_the_proof():
    scheme = jopeq.Sphere(epsilon=2.0, clip=1.0, bits=2, draws=1 << 12)
    report = jopeq.audit(scheme, draws=40_000, noise=PrivateStream.reproducible(b"a" * 32))
    assert report.is_consistent
    assert report.empirical.lower > 1.5
    for epsilon in (2.0, 8.0, 16.0):  # also where some codebooks attain less
        scheme = jopeq.Sphere(epsilon=epsilon, clip=1.0)
        assert exact_epsilon(scheme).server == scheme.guarantee_for(1).epsilon > epsilon - 1e-6


@pytest.mark.parametrize("words", [lambda own: 0.8 * own, lambda own: 0.0 * own + own[0]])
def test_the_audit_finds_members_that_are_too_likely_and_words_that_repeat(words, monkeypatch):
    draw = codebook.draw_indices

    def broken(members, counts, plan, own):
        pairs = own.reshape(-1, 2).copy()
        pairs[:, 0] = words(pairs[:, 0].astype(np.float64)).astype(np.uint64)
        return draw(members, counts, plan, pairs)

    monkeypatch.setattr(codebook, "draw_indices", broken)
    scheme = jopeq.Sphere(epsilon=2.0, clip=1.0, bits=2, draws=1 << 12)
    assert not jopeq.audit(scheme, draws=40_000).is_consistent
