"""``jopeq guard``: a hospital's SuperNode, every app of which is wrapped by the hospital's own mod.

A SuperNode starts each app by a command that it finds in PATH. ``start_guarded`` puts a folder
before PATH whose ``flwr-clientapp`` is ``run_guarded``: it agrees to the server's terms of training
or a survey within the node's configuration, charges the ledger, and only then loads the app; what
the app returns goes through ``SumMod``. Other kinds of apps are refused. This stops apps
that leave the mod out or bring settings of their own. It does not stop hostile code, which can open
connections itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from flwr.app import Context, Message

from jopeq.errors import JoPEQError
from jopeq.flower.sum_mod import SumMod
from jopeq.versions import versions

_INSTALL = "--allow-runtime-dependency-installation"
_OTHERS = ("flwr-agentapp", "flwr-connector", "flwr-model", "flwr-serverapp", "flwr-simulation")
_TESTED = ("1.41",)
_NAMES = {  # of Flower's own, which may change with its versions
    "flwr.supernode.cli": "flwr_clientapp",
    "flwr.supernode.runtime.run_clientapp": "get_load_client_app_fn",
}
_SHIM = """#!{python} -P
from jopeq.flower.guard import {function}
{function}()
"""


def start_guarded(command: Sequence[str]) -> int:
    """Run a ``flower-supernode`` command under guard; its exit status."""
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
    with tempfile.TemporaryDirectory(prefix="jopeq-guard-") as folder:
        for name in ("flwr-clientapp", *_OTHERS):
            function = "run_guarded" if name == "flwr-clientapp" else "refuse"
            shim = Path(folder, name)
            shim.write_text(_SHIM.format(python=sys.executable, function=function))
            shim.chmod(0o700)
        path = os.pathsep.join([folder, os.environ.get("PATH", os.defpath)])
        with subprocess.Popen(words, env={**os.environ, "PATH": path}) as process:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda number, _: process.send_signal(number))
            return process.wait()


def run_guarded() -> None:
    """Flower's ``flwr-clientapp``, with the guard's mod around the app."""
    _check_flower()
    if find_spec("torch") is not None:  # before the app's folder is in the path
        import_module("jopeq.flower.record_app")
    runner: Any = import_module("flwr.supernode.runtime.run_clientapp")
    get_load = runner.get_load_client_app_fn

    def get_guarded(*settings: Any, **named: Any) -> Callable[..., Any]:
        load = get_load(*settings, **named)
        return lambda *which: guard_app(lambda: load(*which))

    runner.get_load_client_app_fn = get_guarded
    sys.argv = [word for word in sys.argv if word != _INSTALL]
    import_module("flwr.supernode.cli").flwr_clientapp()


def guard_app(load: Callable[[], Any]) -> Callable[[Message, Context], Message]:
    """An app that agrees, charges, loads another app and sends no more of it than a share."""
    mod = SumMod(None, surveys=None)

    def answer(message: Message, context: Context) -> Message:
        return mod(message, context, lambda msg, ctxt: load()(msg, ctxt))

    return answer


def refuse() -> None:
    """What stands for all other commands that run apps."""
    sys.exit(f"jopeq guard: {Path(sys.argv[0]).name} is refused: this node runs ClientApps alone")


def _check_flower() -> None:
    """Refuse versions of Flower that may start apps in ways that nobody has looked at."""
    found = versions("flwr").get("flwr", "")
    if found.rpartition(".")[0] not in _TESTED:
        raise JoPEQError(
            f"apps of Flower {found} may start in other ways than this guard knows: use one of "
            f"flwr {', '.join(_TESTED)}",
            code="flower-version",
        )
    for name, attribute in _NAMES.items():
        getattr(import_module(name), attribute)
