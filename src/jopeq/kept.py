"""Numbers that take seconds to compute, kept on disk for the next process of this user.

A file's name hashes everything that its numbers depend on: inputs, code and versions of libraries.
If a file is missing or damaged, or another user could have written it, its numbers are computed
again. Readers still check them as far as that is quick.

The folder is ``$JOPEQ_PLANS``, by default ``plans`` in the user's cache; "off" keeps nothing.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from jopeq.files import atomic, check_own_file, own_folder, user_cache
from jopeq.versions import versions


class Kept:
    """The results of one file of code, at most ``most`` of them."""

    def __init__(self, source: str, most: int) -> None:
        self._source, self._most = Path(source), most

    def find(self, *inputs: object) -> bytes | None:
        """The data kept for these inputs; None if there is none, or it is not sound."""
        with suppress(OSError, RuntimeError):  # RuntimeError: a user without a home
            if (path := self._path(inputs)) is not None and path.exists():
                check_own_file(path)
                told = path.read_bytes()
                if _digest(path, told[32:]) == told[:32]:
                    return told[32:]
        return None

    def put(self, data: bytes, *inputs: object) -> None:
        """Keep a result if there is a folder for it; remove the oldest beyond ``most``."""
        with suppress(OSError, RuntimeError):
            if (path := self._path(inputs)) is None:
                return
            with atomic(path, mode=0o600) as file:
                file.write(_digest(path, data) + data)
            others = path.parent.glob(f"{self._source.stem}-*")
            for old in sorted(others, key=lambda one: -one.stat().st_mtime_ns)[self._most :]:
                old.unlink()

    @cached_property
    def _code(self) -> str:
        """Versions and code, on which results depend in addition to inputs."""
        found = versions("dp-accounting", "numpy", "scipy")
        return f"{found} {hashlib.sha256(self._source.read_bytes()).hexdigest()}"

    def _path(self, inputs: tuple[object, ...]) -> Path | None:
        chosen = os.environ.get("JOPEQ_PLANS")
        if chosen == "off":
            return None
        folder = own_folder(Path(chosen).expanduser() if chosen else user_cache() / "plans")
        name = hashlib.sha256(f"{self._code} {inputs!r}".encode()).hexdigest()
        return folder / f"{self._source.stem}-{name}"


def _digest(path: Path, data: bytes) -> bytes:
    """Hash data and name; the name covers all inputs, so that a renamed file is not sound."""
    return hashlib.sha256(path.name.encode() + b"\0" + data).digest()
