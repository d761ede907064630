"""Where compiled kernels are kept between runs: one folder for each source, place and machine.

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

_MARK = "complete"  # a file: some process has compiled everything


@lru_cache(maxsize=1)
def cache_folder() -> Path | None:
    """The folder, made when missing; None when none can be written, or others can write to it."""
    with suppress(OSError, RuntimeError):  # RuntimeError: a user without a home
        return make_folder()
    return None


def make_folder() -> Path:
    """The folder, made when missing; ``OSError`` or ``RuntimeError`` says why it cannot be used.

    Its name is made of the source and of all that Numba looks compiled code up by.
    """
    here, digest = Path(__file__).parent, sha256(repr(_machine()).encode())
    shared = ("noise/gaussian_rounding.py", "random/portable.py", "wire/entries.py")
    for file in (*sorted((here / "cpu").glob("*.py")), *(here.parent / name for name in shared)):
        written = file.stat().st_mtime_ns  # which Numba before 0.68 looks at
        digest.update(f"\0{os.path.abspath(file)}\0{written}\0".encode() + file.read_bytes())
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    root = Path(chosen).expanduser() if chosen else user_cache()
    folder = own_folder(root / f"kernels-{digest.hexdigest()[:16]}")
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{folder} cannot be written")
    return folder


def _machine() -> list[object]:
    """Python, Numba and the processor: unlike machines may share a home folder."""
    from importlib.metadata import version

    try:
        from llvmlite import binding

        found = [sys.implementation.cache_tag, version("numba")]
    except ImportError:  # nothing will be compiled
        return []
    with suppress(RuntimeError):  # LLVM does not know them on every system
        found.append(binding.get_host_cpu_features().flatten())
    chosen = map(os.environ.get, ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"))
    return [*found, binding.get_default_triple(), binding.get_host_cpu_name(), *chosen]


def is_compiled() -> bool:
    """True if some process has compiled all kernels of this source, here, before."""
    folder = cache_folder()
    return folder is not None and (folder / _MARK).exists()


def mark_compiled() -> None:
    """Say that all kernels are in the folder."""
    folder = cache_folder()
    if folder is not None:
        with suppress(OSError):  # a full disk: then the next process compiles again
            (folder / _MARK).touch()
