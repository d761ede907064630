"""Files written whole or not at all, and folders that nobody else can write to.

A kill at any moment leaves the old file or the new one, and perhaps a part, which the next writer
of the same file removes.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from glob import escape
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def atomic(path: Path, *, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """A binary file that appears at ``path`` when the block succeeds, in place of any old one.

    ``mode`` are the file's permissions, less those that the process's umask takes away.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "rounds.txt"
    ...     with atomic(path) as file:
    ...         _ = file.write("η = 0.1".encode())
    ...         is_there = path.exists()
    ...     is_there, path.read_text(encoding="utf-8")
    (False, 'η = 0.1')
    """
    _sweep(path)
    part, file = _opened(path, mode)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if fcntl is not None:
                os.replace(part, path)  # still locked, so that nobody sweeps it
        if fcntl is None:
            os.replace(part, path)  # Windows renames closed files only
        _sync_folder(path.parent)
    finally:
        part.unlink(missing_ok=True)


def _opened(path: Path, mode: int) -> tuple[Path, IO[bytes]]:
    """A new part of ``path``, locked while open: a part without a lock is a leftover."""
    while True:
        part = path.parent / f".{path.name}.{os.urandom(4).hex()}.part"
        file = open(part, "xb", opener=partial(os.open, mode=mode))  # noqa: SIM115 (caller closes)
        if fcntl is None:
            return part, file
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:  # else somebody swept it before it was locked
            return part, file
        file.close()


def _sweep(path: Path) -> None:
    """Remove the parts of ``path`` whose writers were killed (not on Windows)."""
    if fcntl is None:
        return
    for part in path.parent.glob(f".{escape(path.name)}.{'[0-9a-f]' * 8}.part"):
        with suppress(OSError), part.open("rb") as file:  # OSError: locked, gone, or not ours
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.unlink()


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
    """Wait until no other thread or process holds ``lock``, a file of its own (not on Windows)."""
    with lock.open("a") as file:  # never shortens a file that happens to have this name
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def own_folder(path: Path) -> Path:
    """The folder without links in its path, made when missing; nobody else can write to it.

    ``PermissionError`` if another user (other than root) owns the folder or one above it, or if
    others can write there and so exchange the folders below (not checked on Windows). A sticky
    folder such as /tmp may lie above: only owners rename there.
    """
    path = path.resolve()
    for missing in reversed([f for f in (path, *path.parents) if not f.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    for folder in (path, *path.parents) if os.name == "posix" else ():
        status = folder.stat()
        if status.st_uid not in (0, os.geteuid()):
            raise PermissionError(f"{folder} belongs to another user: choose a folder of your own")
        is_sticky = folder != path and status.st_mode & stat.S_ISVTX
        if status.st_mode & 0o022 and not is_sticky:
            raise PermissionError(f"others can write to {folder}: chmod go-w it, or choose another")
    return path
