"""Fused encode and decode: one pass over memory, on CPU and GPU, with the plain path's bytes.

The plain NumPy path is the specification and always works. Compiled kernels (Numba, installed by
``jopeq[fast]``) take over when they pay: loading them takes about a second, compiling them under
a minute, once for every version and machine; ``jopeq warmup`` does that ahead of time.
``JOPEQ_KERNELS=auto|on|off`` or ``use`` chooses.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache

from jopeq.kernels.cache import is_compiled, mark_compiled
from jopeq.kernels.threads import set_threads, threads

__all__ = ["MODES", "are_loaded", "are_used", "expect", "load", "set_threads", "threads", "use"]

MODES = ("auto", "on", "off")
_WORTH_LOADING = 1 << 21  # entries: what the plain path does in the time of loading
_WORTH_COMPILING = 1 << 29

_LAST = "jopeq.kernels.cpu.sums"  # of the modules that ``load`` imports

_mode: str | None = None
_expected = 0


def use(mode: str | None) -> None:
    """Choose "auto" (kernels when they pay), "on" or "off"; None takes JOPEQ_KERNELS again.

    >>> use("off"); are_used(1 << 40)
    False
    >>> use(None)
    """
    global _mode
    if mode is not None:
        _check(mode, "mode")
    _mode = mode


def expect(entries: int) -> None:
    """Announce work to come, so that "auto" need not wait until it has seen it."""
    global _expected
    _expected += entries


def are_used(entries: int) -> bool:
    """Whether kernels code this update of so many entries; it counts as work from now on."""
    mode = _current_mode()
    if mode == "off":
        return False
    if mode == "on" or _is_loaded():
        return load()
    expect(entries)
    if _expected < _WORTH_LOADING:
        return False
    is_worth_it = is_compiled() or _expected >= _WORTH_COMPILING
    return is_worth_it and _is_available() and load()


def load() -> bool:
    """Load all CPU kernels, compiling them when no process has done so before."""
    if not _is_loaded():
        try:
            from jopeq.kernels.cpu import aggregate as cpu_aggregate  # noqa: F401 (importing compiles)
            from jopeq.kernels.cpu import sums as cpu_measure  # noqa: F401 (importing compiles)
        except ImportError as error:
            raise ImportError(
                f"compiled kernels need Numba ({error}): pip install 'jopeq[fast]', or "
                "JOPEQ_KERNELS=off"
            ) from error
    _mark_once()
    return True


@lru_cache(maxsize=1)
def _mark_once() -> None:
    """Also where somebody had imported the kernels without ``load``."""
    mark_compiled()


def are_loaded() -> bool:
    """Whether kernels are in memory and not switched off."""
    return _is_loaded() and _current_mode() != "off"


@lru_cache(maxsize=1)
def _is_available() -> bool:
    """Whether Numba can be imported: it may be missing, or too old for this NumPy."""
    try:
        import numba  # noqa: F401
    except ImportError:
        return False
    return True


def _is_loaded() -> bool:
    return _LAST in sys.modules


def _current_mode() -> str:
    global _mode
    if _mode is None:
        _mode = _check(os.environ.get("JOPEQ_KERNELS", "auto"), "JOPEQ_KERNELS")
    return _mode


def _check(mode: str, name: str) -> str:
    if mode not in MODES:
        raise ValueError(f"{name} must be one of {', '.join(MODES)}, got {mode!r}")
    return mode
