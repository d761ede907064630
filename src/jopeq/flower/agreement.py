"""What the server tells its clients each round, and the client's check that both mean the same.

A client never adopts the server's settings: a server that could choose them could choose none.
"""

from __future__ import annotations

from flwr.app import ConfigRecord

from jopeq.errors import JoPEQError
from jopeq.flower.settings import Settings
from jopeq.privacy import AdaptiveClip
from jopeq.schemes import Scheme

PROTOCOL = 1


class SettingsMismatchError(JoPEQError, ValueError):
    """Client and server were set up differently; nothing was sent."""


def offer(scheme: Scheme, rule: AdaptiveClip | None) -> ConfigRecord:
    """The server's settings of one round."""
    record = ConfigRecord({"protocol": PROTOCOL, "scheme": scheme.spec, "clip-rule": _name(rule)})
    if rule is not None and scheme.clip is not None:
        record["clip"] = scheme.clip
    return record


def agree(mine: Settings, offered: ConfigRecord | None) -> Scheme:
    """The scheme of this round; ``SettingsMismatchError`` names both ends' settings.

    Without an offer (a server that does not know jopeq) a fixed scheme stands: its payload makes
    such a server stop instead of training on without this client.
    """
    if offered is None:
        if mine.adaptive_clip is not None:
            raise SettingsMismatchError(
                "this client adapts its clip and the server sent none: wrap the server's strategy "
                "in JoPEQStrategy"
            )
        return mine.scheme
    if offered.get("protocol") != PROTOCOL:
        raise SettingsMismatchError(
            f"the server speaks protocol {offered.get('protocol')!r} and this client {PROTOCOL}: "
            "use the same jopeq version on both ends"
        )
    if offered.get("clip-rule") != _name(mine.adaptive_clip):
        raise SettingsMismatchError(
            f"the server's clip rule is {offered.get('clip-rule')!r}, this client's "
            f"{_name(mine.adaptive_clip)!r}; nothing was sent"
        )
    scheme = mine.scheme
    if mine.adaptive_clip is not None:
        clip = offered.get("clip")
        if not isinstance(clip, float):
            raise SettingsMismatchError(f"the server's clip must be a number, got {clip!r}")
        scheme = mine.with_clip(clip)
    if offered.get("scheme") != scheme.spec:
        raise SettingsMismatchError(
            f"the server uses scheme {offered.get('scheme')!s} and this client {scheme.spec}; "
            "nothing was sent"
        )
    return scheme


def _name(rule: AdaptiveClip | None) -> str:
    return "fixed" if rule is None else repr(rule)
