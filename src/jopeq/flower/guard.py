"""``jopeq guard``: a hospital's SuperNode, every app of which is wrapped by the hospital's own mod.

A SuperNode starts each app by a command that it finds in PATH. ``start_guarded`` becomes the
SuperNode, with a PATH of one folder and in it commands of the guard's alone: whatever happens to
that folder or to its interpreter, no other command is found and no app starts. ``flwr-clientapp``
is ``run_guarded`` there: it agrees to the server's terms of training or a survey within the node's
configuration, charges the ledger, and only then unpacks and loads the app; what the app returns
goes through ``SumMod``. Other kinds of apps are refused. This stops apps that leave the mod out
or bring settings of their own. It does not stop hostile code, which can open connections itself:
``jopeq-app-sha256`` of the node's configuration names the only apps that run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from logging import ERROR, INFO
from pathlib import Path
from typing import Any, NoReturn

from flwr.app import Context, Message
from flwr.common.config import parse_config_args
from flwr.common.logger import log

from jopeq.circle import read_audit
from jopeq.errors import JoPEQError
from jopeq.files import atomic, own_folder
from jopeq.flower.node import check_node, ledger_file, read_node
from jopeq.flower.refusals import RefusedError, refusal_of
from jopeq.flower.sum_mod import SumMod
from jopeq.ledger import Ledger, printable
from jopeq.versions import versions

_INSTALL = "--allow-runtime-dependency-installation"
_APP, _LAUNCHER = "flwr-clientapp", "flower-superexec"
_OTHERS = ("flwr-agentapp", "flwr-connector", "flwr-model", "flwr-serverapp", "flwr-simulation")
_TESTED = ("1.41",)
_NAMES = {  # of Flower's own, which may change with its versions
    "flwr.supernode.cli": ("flwr_clientapp",),
    "flwr.supercore.cli": ("flower_superexec",),
    "flwr.supernode.runtime.run_clientapp": ("get_load_client_app_fn", "install_from_fab"),
}
_RUN = """#!{python} -P
from {module} import {function}
{function}()
"""
_REFUSE = """#!/bin/sh
echo "jopeq guard: {name} is refused: this node runs ClientApps alone" >&2
exit 1
"""
_TEST, _PATH = "JOPEQ_GUARD_TEST", "JOPEQ_GUARD_PATH"  # in the environment of commands
_GRACE = 30.0  # seconds that an app may go on without the node that started it
_SLACK = 60.0  # seconds that clocks of one machine and of its disks may differ


def start_guarded(command: Sequence[str]) -> NoReturn:
    """Become a ``flower-supernode`` command under guard."""
    _check_flower()
    words = list(command)
    if not words or Path(words[0]).name != "flower-supernode":
        raise ValueError(f"command must be flower-supernode and its options, got {words[:1]}")
    if "process" in {word.partition("=")[2] or word for word in words}:
        raise ValueError(
            "command: with --isolation process apps run elsewhere, out of this guard: leave it out"
        )
    if _INSTALL in words:
        raise ValueError(f"command: {_INSTALL} would let apps replace libraries: leave it out")
    program = shutil.which(words[0])
    if program is None:
        raise ValueError(f"command: there is no program {words[0]}: install flwr, or give its path")
    if problems := check_command(words):
        raise ValueError("\n".join(["node-config: no node is started:", *problems]))
    folder = _make_commands(_config_of(words))
    path = os.environ.get("PATH", os.defpath)
    environment = {**os.environ, "PATH": str(folder), _PATH: path}
    _test_commands(folder, environment)
    log(INFO, "jopeq guard: every app of this node is started by %s, or not at all", folder)
    os.execve(program, words, environment)


def check_command(command: Sequence[str]) -> list[str]:
    """List what is wrong with the node's configuration in a ``flower-supernode`` command."""
    return check_node(_config_of(command))


def _config_of(command: Sequence[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--node-config")
    given = parser.parse_known_args(command[1:])[0].node_config
    return dict(parse_config_args([given] if given else None))


def _make_commands(config: dict[str, Any]) -> Path:
    """A folder next to the ledger with the only commands that the SuperNode finds."""
    ledger = ledger_file(config)
    folder = own_folder(ledger.with_name(f"{ledger.name}.guard"))
    folder.chmod(0o700)
    for stranger in folder.iterdir():
        stranger.unlink()
    texts = {name: _REFUSE.format(name=name) for name in _OTHERS}
    for name, module, function in (
        (_APP, __name__, run_guarded.__name__),
        (_LAUNCHER, "flwr.supercore.cli", "flower_superexec"),
    ):
        texts[name] = _RUN.format(python=sys.executable, module=module, function=function)
    for name, text in texts.items():
        with atomic(folder / name, mode=0o700) as file:
            file.write(text.encode())
    return folder


def _test_commands(folder: Path, environment: dict[str, str]) -> None:
    """Refuse unless each command, found as a SuperNode finds it, is the guard's and runs."""
    nonce = os.urandom(8).hex()
    for name in (_APP, *_OTHERS):
        try:
            tested = subprocess.run(
                [name], env={**environment, _TEST: nonce}, capture_output=True, text=True
            )
            told = tested.stdout if name == _APP else tested.stderr
        except OSError as error:
            told = str(error)
        if (f"jopeq guard {nonce}" if name == _APP else f"{name} is refused") not in told:
            raise JoPEQError(
                f"the guard's command {folder / name} does not run, so no node is started: programs"
                f" must be allowed in that folder, and its interpreter be there: {told[-300:]}",
                code="guard",
            )


def run_guarded() -> None:
    """Flower's ``flwr-clientapp``, with the guard's mod around the app."""
    _check_flower()
    if nonce := os.environ.get(_TEST):
        print(f"jopeq guard {nonce}")  # noqa: T201 (read by the guard that starts the node)
        return
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    os.environ["PATH"] = os.environ.pop(_PATH, os.defpath)  # the app starts no other apps
    if find_spec("torch") is not None:  # before the app's folder is in the path
        import_module("jopeq.flower.torch_clients")
    runner: Any = import_module("flwr.supernode.runtime.run_clientapp")
    get_load, install = runner.get_load_client_app_fn, runner.install_from_fab
    bundles: list[bytes] = []

    def get_guarded(*settings: Any, **named: Any) -> Callable[..., Any]:
        load = get_load(*settings, **named)

        def load_guarded(*which: Any) -> Callable[[Message, Context], Message]:
            (bundle,) = bundles
            found = hashlib.sha256(bundle).hexdigest()
            log(INFO, "jopeq guard: the app %s is guarded", found)

            def unpack_and_load() -> Any:
                install(bundle, skip_prompt=True)
                return load(*which[:2], found)

            return guard_app(unpack_and_load, found)

        return load_guarded

    runner.get_load_client_app_fn = get_guarded
    runner.install_from_fab = lambda bundle, **_: bundles.append(bundle)  # unpacked when pinned
    sys.argv = [word for word in sys.argv if word != _INSTALL]
    import_module("flwr.supernode.cli").flwr_clientapp()


def _end_with(parent: int) -> None:
    """End this process some time after its parent: Flower's own end can hang for a dead server."""
    while os.getppid() == parent:
        time.sleep(0.5)
    time.sleep(_GRACE)
    os._exit(1)


def guard_app(
    load: Callable[[], Any], found: str | None = None
) -> Callable[[Message, Context], Message]:
    """An app that agrees, charges, loads another app and sends no more of it than a share.

    ``found`` is the app's hash, which ``jopeq-app-sha256`` of the node's configuration may pin.
    """
    mod = SumMod(None, surveys=None)
    mod.app = found or ""

    def answer(message: Message, context: Context) -> Message:
        try:
            if found not in read_node(context.node_config).get("app-sha256", {found}):
                raise RefusedError("limits", f"the app {found} is none of jopeq-app-sha256")
        except Exception as error:
            reply = refusal_of(error, "settings").reply(message, mod)
        else:
            reply = mod(message, context, lambda msg, ctxt: load()(msg, ctxt))
        note_reply(context.node_config, reply)
        return reply

    return answer


def _check_flower() -> None:
    """Refuse versions of Flower that may start apps in ways that nobody has looked at."""
    found = versions("flwr").get("flwr", "")
    if found.rpartition(".")[0] not in _TESTED:
        told = f"apps of Flower {found} may start in other ways than this guard knows"
        raise JoPEQError(f"{told}: use flwr {', '.join(_TESTED)}", code="flower-version")
    for name, attributes in _NAMES.items():
        for attribute in attributes:
            getattr(import_module(name), attribute)


# The health of a node: what a supervisor asks, and what the guard writes down for it


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
