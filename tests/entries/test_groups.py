"""Groups of tensors with schemes of their own, and public clips for every tensor."""

import pickle
import struct

import numpy as np
import pytest

import jopeq
from jopeq.errors import BudgetExceededError, PayloadError, StateMismatchError
from jopeq.random.streams import PrivateStream
from jopeq.wire.payload import open_payload, seal

BASE = jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=0.05)
PAIRS = jopeq.scheme("jopeq", epsilon=3.0, rate=2.0, lattice="A2", clip=0.1)
GROUPS = jopeq.Groups(BASE, {"fc.*": 0.5, "embed*": PAIRS, "*.bias": {"epsilon": 2.0}})
SEED, NOISE = bytes(range(32)), bytes(range(100, 132))
SIZES = {"conv.weight": 12, "embed.weight": 7, "fc.weight": 25, "conv.bias": 3, "bn.running_var": 3}


def update(scale=0.02):
    source = np.random.default_rng(0)
    return {name: scale * source.standard_normal(size) for name, size in SIZES.items()}


def test_every_tensor_is_coded_by_its_own_scheme():
    found = {name: GROUPS.members[GROUPS.member(name)] for name in SIZES}
    assert found["conv.weight"] == found["bn.running_var"] == BASE
    assert found["fc.weight"].clip == 0.5
    assert found["embed.weight"] == PAIRS
    assert found["conv.bias"].epsilon == 2.0
    assert GROUPS.member("arrays/fc.weight") == GROUPS.member("fc.weight")  # Flower's record first
    payloads = [GROUPS.encode(update()) for _ in range(100)]
    mean = jopeq.aggregate(payloads, scheme=GROUPS, like=update())
    decoded = [GROUPS.decode(payload, like=update()) for payload in payloads]
    for name, value in update().items():
        every = np.array([one[name] for one in decoded], dtype=np.float64)
        np.testing.assert_allclose(mean[name], every.mean(0), atol=1e-12)
        # A2's fixed-rate codebook is biased where it overloads; the channels are not
        slack = 0.02 if name == "embed.weight" else 0.0
        limit = 5.0 * every.std(0) / np.sqrt(len(every)) + slack
        assert (np.abs(every.mean(0) - value) < limit).all(), name


def test_groups_share_no_randomness():
    """Two groups with the same scheme and entries: errors that repeat would tell differences."""
    same = jopeq.Groups(BASE, {"a": BASE, "b": BASE})
    state = dict.fromkeys("abc", np.zeros(20_000))
    decoded = same.decode(same.encode(state), like=state)
    correlation = np.corrcoef(list(decoded.values())) - np.eye(3)
    assert np.abs(correlation).max() < 5.0 / np.sqrt(20_000)


def test_costs_add_up_exactly_in_guarantee_and_ledger():
    low = jopeq.scheme("response", epsilon=2.0, rate=2.0, clip=0.05).guarantee.epsilon
    per_entry, per_pair = BASE.guarantee.epsilon, PAIRS.guarantee.epsilon
    expected = (12 + 25 + 3) * per_entry + 4 * per_pair + 3 * low
    assert GROUPS.cost(SIZES).epsilon == pytest.approx(expected, rel=1e-12)
    ledger = jopeq.Ledger(1.5 * expected)
    ledger.encode(GROUPS, update())
    assert ledger.spent.epsilon == pytest.approx(expected, rel=1e-12)
    with pytest.raises(BudgetExceededError):
        ledger.encode_state(GROUPS, update())
    worst = GROUPS.guarantee
    assert worst.epsilon == max(per_entry, per_pair, low)
    assert worst.for_update(sum(SIZES.values())).epsilon >= expected
    assert not worst.is_exact
    pairs = jopeq.Groups(PAIRS, {"a": 0.2, "b": 0.3})
    odd = {"a": 1, "b": 1, "c": 1}  # three pairs, each half empty
    assert pairs.cost(odd).epsilon == pytest.approx(3 * per_pair)
    assert pairs.guarantee.for_update(3).epsilon >= pairs.cost(odd).epsilon


def test_kernels_write_the_same_bytes_group_by_group(compiled):
    pieces, written = {name: np.resize(value, 3000) for name, value in update().items()}, []
    for mode in ("on", "off"):
        compiled.use(mode)
        noise = PrivateStream.reproducible(NOISE)
        written.append(GROUPS.encode(pieces, seed=SEED, noise=noise))
        written.append(jopeq.aggregate(written[-1:], scheme=GROUPS)["fc.weight"].tobytes())
    assert written[:2] == written[2:]


def test_groups_travel_as_specifications_and_pickles():
    for copy in (jopeq.scheme_from_spec(GROUPS.spec), pickle.loads(pickle.dumps(GROUPS))):
        assert copy == GROUPS
        assert hash(copy) == hash(GROUPS)
        payload = GROUPS.encode(update(), key=SEED)
        assert sorted(copy.decode(payload, like=update(), key=SEED)) == sorted(SIZES)
    with pytest.raises(PayloadError, match="made by scheme"):
        BASE.decode(payload, like=update(), key=SEED)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({}, "at least one pattern"),
        ({"a": jopeq.scheme("sdq", rate=2.0)}, "one names no ε"),
        ({"a": jopeq.Sphere(epsilon=1.0, clip=1.0)}, "all tensors together"),
        ({"a": jopeq.scheme("response", epsilon=4.0, rate=2.0, clip="layers")}, "all tensors"),
        ({"a": GROUPS}, "all tensors together"),
        ({"a": -1.0}, "clip must be a positive number"),
        ({"a": {"epsilom": 1.0}}, "epsilom"),
    ],
)
def test_impossible_groups_are_refused(groups, message):
    with pytest.raises((ValueError, TypeError), match=message):
        jopeq.Groups(BASE, groups)


def test_a_group_without_a_clip_leaves_the_whole_without_one():
    """So that a budget refuses it: its norm travels in the clear."""
    assert GROUPS.clip == 0.05
    assert jopeq.Groups(BASE, {"a": {"clip": None}}).clip is None


def test_lengths_that_lie_are_refused():
    payload = GROUPS.encode(update())
    header, body = open_payload(payload)
    count = len(GROUPS.parts(header.names))
    lengths = struct.unpack(f"<{count}Q", body[: 8 * count])
    rest = bytes(body[8 * count :])
    lies = (lengths[0] + 1, *lengths[1:]), (lengths[0] + 1, lengths[1] - 1, *lengths[2:])
    forged = (struct.pack(f"<{count}Q", *wrong) + rest for wrong in lies)
    for wrong in (*forged, b"", bytes(body[:9])):
        with pytest.raises(PayloadError):
            GROUPS.decode(seal(header.to_bytes(), [wrong], None), like=update())


# clip="layers"

LAYERS = jopeq.scheme("response", epsilon=4.0, rate=2.0, clip="layers")


def test_layers_is_a_clip_for_each_tensor_that_both_ends_must_agree_on():
    assert (LAYERS.clip, LAYERS.per) == (0.05, "layers")
    bound = LAYERS.with_clips({"conv.weight": 0.5, "fc.weight": 0.001})
    assert bound.spec == LAYERS.spec
    header = bound.open(bound.encode(update())).header
    units = dict(zip(header.names, (scale.unit for scale in header.scales), strict=True))
    expected = {"conv.weight": 0.5, "fc.weight": 0.001, "conv.bias": 0.05, "bn.running_var": 1.0}
    for name, clip in expected.items():
        assert units[name] == np.float32(clip)
    with pytest.raises(PayloadError, match="not those that both ends agreed on"):
        LAYERS.decode(bound.encode(update()), like=update())
    assert bound.cost(SIZES).epsilon == LAYERS.cost(SIZES).epsilon
    with pytest.raises(ValueError, match="needs per='layers'"):
        BASE.with_clips({"w": 1.0})
    for clip in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="clip must be"):
            LAYERS.with_clips({"w": clip})


def test_clips_find_the_size_of_every_tensor_at_no_cost():
    """From 50 times too large and 50 times too small to 2.5 times the root mean square."""
    source = np.random.default_rng(1)
    sizes = {"small": 1e-3, "large": 2.5, "bn.running_var": 0.1}
    scheme, rule = LAYERS, jopeq.LayerClips()
    for _ in range(20):
        updates = [
            {name: size * source.standard_normal(2000) for name, size in sizes.items()}
            for _ in range(5)
        ]
        decoded = [scheme.decode(scheme.encode(one), like=one) for one in updates]
        scheme = rule.updated(scheme, decoded)
    for name, clip in scheme.clips:
        assert 2.0 < clip / sizes[name] < 3.5, name
    hostile = {name: np.full(2000, 1e30) for name in sizes}
    for name, clip in rule.updated(scheme, [*decoded, hostile]).clips:
        assert clip < 1.5 * dict(scheme.clips)[name]
    assert rule.updated(scheme, []) is scheme
    with pytest.raises(StateMismatchError, match="same tensors"):
        rule.updated(scheme, [{"small": np.ones(3)}, {"small": np.ones(3), "large": np.ones(3)}])
