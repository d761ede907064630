"""Where compiled kernels are kept between runs: one folder for each state of their source."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path


@lru_cache(maxsize=1)
def cache_folder() -> Path | None:
    """The folder, made when missing; None when none can be written."""
    digest = sha256()
    here = Path(__file__).parent
    shared = [here.parent / name for name in ("portable.py", "samplers.py", "scaling.py")]
    for file in [*sorted(here.glob("cpu_*.py")), here / "native.py", *shared]:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    try:
        folder = _root() / f"kernels-{digest.hexdigest()[:16]}"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: a user without a home
        return None
    return folder if os.access(folder, os.W_OK) else None


def is_compiled() -> bool:
    """Whether some process has compiled all kernels of this source before."""
    folder = cache_folder()
    return folder is not None and (folder / _mark()).exists()


def mark_compiled() -> None:
    """Say that all kernels are in the folder."""
    folder = cache_folder()
    if folder is not None:
        with suppress(OSError):  # a full disk: then the next process compiles again
            (folder / _mark()).touch()


def _mark() -> str:
    """What says so: Numba keeps apart the code of its own versions and of Python's."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        numba = version("numba")
    except PackageNotFoundError:
        numba = "missing"
    return f"complete-{sys.implementation.cache_tag}-numba-{numba}"


def _root() -> Path:
    chosen = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("JOPEQ_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "jopeq"
