"""Files written whole or not at all: a kill at any moment leaves the old one or the new one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def atomic(path: Path, *, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """A binary file that appears at ``path`` when the block succeeds, in place of any old one.

    ``mode`` are its permissions, of which the process's umask takes some away as usual.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "rounds.txt"
    ...     with atomic(path) as file:
    ...         _ = file.write("η = 0.1".encode())
    ...         is_there = path.exists()
    ...     is_there, path.read_text(encoding="utf-8")
    (False, 'η = 0.1')
    """
    part = path.parent / f".{path.name}.{os.urandom(4).hex()}.part"
    file = open(part, "xb", opener=partial(os.open, mode=mode))  # noqa: SIM115 (closed below)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        _sync_folder(path.parent)
    finally:
        part.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make the new name survive a power cut, where folders can be synced."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Wait until no other thread or process holds ``lock``, a file made for it (but on Windows)."""
    with lock.open("w") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
