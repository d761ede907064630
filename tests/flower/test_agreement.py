from __future__ import annotations

import pytest

import jopeq
from jopeq.flower.settings import Settings, SettingsMismatchError, agree, offer

SCHEME = jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=0.1)
RULE = jopeq.AdaptiveClip()


def test_same_settings_agree():
    assert agree(Settings(scheme=SCHEME), offer(SCHEME, None)) == SCHEME


def test_the_clip_of_the_round_is_the_servers():
    mine = Settings(scheme=SCHEME, adaptive_clip=RULE)
    assert agree(mine, offer(mine.with_clip(0.25), RULE)).clip == 0.25


def test_a_server_without_jopeq_gets_a_payload_it_cannot_read():
    assert agree(Settings(scheme=SCHEME), None) == SCHEME
    with pytest.raises(SettingsMismatchError, match="wrap the server's strategy"):
        agree(Settings(scheme=SCHEME, adaptive_clip=RULE), None)


def test_mismatch_names_both():
    other = jopeq.scheme("response", epsilon=2.0, rate=2.0, clip=0.1)
    with pytest.raises(SettingsMismatchError) as caught:
        agree(Settings(scheme=SCHEME), offer(other, None))
    assert SCHEME.spec in str(caught.value)
    assert other.spec in str(caught.value)


def test_a_fixed_clip_is_not_the_servers_to_move():
    moved = Settings(scheme=SCHEME).with_clip(0.2)
    with pytest.raises(SettingsMismatchError, match="the server uses scheme"):
        agree(Settings(scheme=SCHEME), offer(moved, None))


def test_clip_rules_must_match():
    with pytest.raises(SettingsMismatchError, match=r"AdaptiveClip\(.*'fixed'"):
        agree(Settings(scheme=SCHEME), offer(SCHEME, RULE))
    mine = Settings(scheme=SCHEME, adaptive_clip=jopeq.AdaptiveClip(epsilon=0.5))
    with pytest.raises(SettingsMismatchError, match=r"epsilon=1.0.*epsilon=0.5"):
        agree(mine, offer(SCHEME, RULE))


@pytest.mark.parametrize("clip", [0, "0.1", [0.1]])
def test_clip_must_be_a_number(clip):
    record = offer(SCHEME, RULE)
    record["clip"] = clip
    with pytest.raises(SettingsMismatchError, match="clip must be a number"):
        agree(Settings(scheme=SCHEME, adaptive_clip=RULE), record)


def test_protocols_must_match():
    record = offer(SCHEME, None)
    record["protocol"] = 2
    with pytest.raises(SettingsMismatchError, match="same jopeq version"):
        agree(Settings(scheme=SCHEME), record)
