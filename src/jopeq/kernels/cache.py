"""Where compiled kernels are kept between runs: one folder for each state of their source.

Who can write to the folder can run code as every user who loads kernels from it.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from jopeq.files import own_folder, user_cache


@lru_cache(maxsize=1)
def cache_folder() -> Path | None:
    """The folder, made when missing; None when none can be written, or others can write to it."""
    with suppress(OSError, RuntimeError):  # RuntimeError: a user without a home
        return make_folder()
    return None


def make_folder() -> Path:
    """The folder, made when missing; ``OSError`` or ``RuntimeError`` says why it cannot be used."""
    digest = sha256()
    for file in _sources():
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    folder = own_folder(_root() / f"kernels-{digest.hexdigest()[:16]}")
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{folder} cannot be written")
    return folder


def _sources() -> list[Path]:
    here = Path(__file__).parent
    names = ("noise/gaussian_rounding.py", "random/portable.py", "wire/entries.py")
    shared = [here.parent / name for name in names]
    return [*sorted((here / "cpu").glob("*.py")), *shared]


def is_compiled() -> bool:
    """True if some process has compiled all kernels of this source, here, before."""
    folder = cache_folder()
    return folder is not None and (folder / _mark()).exists()


def mark_compiled() -> None:
    """Say that all kernels are in the folder."""
    folder = cache_folder()
    if folder is not None:
        with suppress(OSError):  # a full disk: then the next process compiles again
            (folder / _mark()).touch()


def _mark() -> str:
    """The file that says so. Its name has everything that Numba looks compiled code up by."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        numba = version("numba")
    except PackageNotFoundError:
        numba = "missing"
    return f"complete-{sys.implementation.cache_tag}-numba-{numba}-{_place()}-{_processor()}"


@lru_cache(maxsize=1)
def _place() -> str:
    """Where the source lies and, for Numba before 0.68, when it was written: another checkout or
    environment compiles for itself.
    """
    files = [(os.path.abspath(file), file.stat().st_mtime_ns) for file in _sources()]
    return sha256(repr(files).encode()).hexdigest()[:16]


@lru_cache(maxsize=1)
def _processor() -> str:
    """The processor that code is compiled for: unlike machines may share a home folder."""
    try:
        from llvmlite import binding
    except ImportError:
        return "unknown"
    try:
        features = binding.get_host_cpu_features().flatten()
    except RuntimeError:  # LLVM does not know them on every system
        features = ""
    chosen = (os.environ.get("NUMBA_CPU_NAME"), os.environ.get("NUMBA_CPU_FEATURES"))
    parts = (binding.get_default_triple(), binding.get_host_cpu_name(), features, *chosen)
    return sha256(repr(parts).encode()).hexdigest()[:16]


def _root() -> Path:
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    return Path(chosen).expanduser() if chosen else user_cache()
