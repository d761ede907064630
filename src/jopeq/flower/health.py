"""Health of a hospital's node: what a supervisor asks, and what the guard writes down for it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from logging import ERROR
from pathlib import Path
from typing import Any

from flwr.app import Message
from flwr.common.logger import log

from jopeq.circle.circle_client import read_audit
from jopeq.files import atomic
from jopeq.flower.node import check_node, ledger_file
from jopeq.ledger import Ledger, printable

_SLACK = 60.0  # seconds that clocks of one machine and of its disks may differ


def note_reply(config: Mapping[str, Any], reply: Message) -> None:
    """Write down, next to the ledger, when this node answered last and whether it refused."""
    refused = (reply.error.reason or "error") if reply.has_error() else ""
    try:
        with atomic(_last_file(config), mode=0o600) as file:
            file.write(json.dumps({"time": time.time(), "refused": refused}).encode())
    except (OSError, ValueError) as error:  # health is no reason to keep a reply back
        log(ERROR, "jopeq guard: the last message is not written down: %s", error)


def check_health(config: Mapping[str, Any]) -> list[str]:
    """List what is wrong with a node: its configuration, keys, ledger, clock or last message.

    Each problem is a sentence with its remedy; none means that the node can take part.
    """
    if found := check_node(config):
        return found
    file, last = ledger_file(config), _last_file(config)
    audit = file.with_name(f"{file.name}.circle") / "audit.jsonl"
    latest = max((one.stat().st_mtime for one in (file, audit, last) if one.exists()), default=0.0)
    if latest > time.time() + _SLACK:
        found.append(
            f"the clock says {_text(time.time())} and files of the ledger are of {_text(latest)}: "
            "set the clock, or ledgers will have wrong dates and certificates be refused"
        )
    try:
        sent = [one["serial"] for one in read_audit(audit)] if audit.exists() else []
        if Ledger.load(file).rounds < max(sent, default=0):
            found.append(
                f"{audit} has {max(sent)} shares and {file} counts fewer: an older copy has taken "
                "the ledger's place; put the newest one back"
            )
    except Exception as error:
        found.append(str(error))
    if last.exists() and (said := json.loads(last.read_bytes()))["refused"]:
        found.append(
            f"the last message, {_text(said['time'])}, was refused: {printable(said['refused'])}"
        )
    return found


def _last_file(config: Mapping[str, Any]) -> Path:
    file = ledger_file(config)
    return file.with_name(f"{file.name}.last")


def _text(moment: float) -> str:
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%S} UTC"
