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

# flags that Windows lacks are 0 there
_CAREFUL = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


@contextmanager
def atomic(path: Path, *, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """A binary file that appears at ``path`` when the block succeeds, and replaces an old one.

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
    part, file = _open_part(path, mode)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if fcntl is not None:
                os.replace(part, path)  # still locked, so that nobody sweeps it
        if fcntl is None:
            os.replace(part, path)  # Windows renames closed files only
        if os.name == "posix":  # the new name survives a power cut, where folders can be synced
            handle = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
    finally:
        part.unlink(missing_ok=True)


def _open_part(path: Path, mode: int) -> tuple[Path, IO[bytes]]:
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
        with suppress(OSError), _own_file(part, os.O_RDONLY) as file:  # locked, gone, or not ours
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.unlink()


@contextmanager
def _own_file(path: Path, flags: int) -> Iterator[int]:
    """The handle of a plain file of this user. Links are not followed, and no FIFO blocks."""
    handle = os.open(path, flags | _CAREFUL, 0o600)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or not _is_ours(status):
            raise PermissionError(f"{path} is no plain file of this user: remove it")
        yield handle
    finally:
        os.close(handle)


def _is_ours(status: os.stat_result) -> bool:
    return os.name != "posix" or status.st_uid in (0, os.geteuid())


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Wait until no other thread or process holds ``lock``, a file of its own (not on Windows)."""
    with _own_file(lock, os.O_RDWR | os.O_CREAT) as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def check_own_file(path: Path, *, is_secret: bool = False) -> None:
    """``PermissionError`` where another user could have made this file, or read a secret one."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode) or not _is_ours(status):
        raise PermissionError(f"{path} is no plain file of this user: somebody may have forged it")
    if os.name == "posix" and status.st_mode & 0o022:
        raise PermissionError(f"others can write to {path}: chmod go-w it if you trust its content")
    if os.name == "posix" and is_secret and status.st_mode & 0o077:
        raise PermissionError(f"others can read {path}, which is secret: chmod 600 it")
    _check_folders(path.resolve().parent)


def boot_id() -> str:
    """A name that changes when the machine restarts; empty where there is none (not Linux)."""
    told = Path("/proc/sys/kernel/random/boot_id")
    return told.read_text("ascii").strip() if told.exists() else ""


def user_cache() -> Path:
    """Where this user's programs keep what can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "jopeq"


def own_folder(path: Path) -> Path:
    """The folder without links in its path, made when missing; nobody else can write to it.

    ``PermissionError`` if another user (other than root) owns the folder or one above it, or if
    others can write there and so exchange the folders below (not checked on Windows). A sticky
    folder such as /tmp may lie above: only owners rename there.
    """
    path = path.resolve()
    for folder in (*reversed(path.parents), path):
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)
    _check_folders(path)
    return path


def _check_folders(path: Path) -> None:
    for folder in (path, *path.parents) if os.name == "posix" else ():
        status = folder.lstat()  # a link here was made after the path was resolved
        if not stat.S_ISDIR(status.st_mode) or not _is_ours(status):
            raise PermissionError(f"{folder} belongs to another user: choose a folder of your own")
        is_sticky = folder != path and status.st_mode & stat.S_ISVTX
        if status.st_mode & 0o022 and not is_sticky:
            raise PermissionError(
                f"others can write to {folder}, and may have put files there: choose a new folder "
                "of your own"
            )
