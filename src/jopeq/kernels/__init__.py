"""Fused encode and decode: one pass over memory, on CPU and GPU, with the plain path's bytes.

The plain NumPy path is the specification and always works. Compiled kernels (Numba, installed by
``jopeq[fast]``) take over when they pay: loading them takes about a second, compiling them under
a minute, once for every version and machine; ``jopeq doctor --warmup`` compiles them ahead.
``JOPEQ_KERNELS=auto|on|off`` or ``use`` chooses.

This module is the door for other rooms. They import from here:

- ``use``, ``expect``, ``prepare``, ``note``, ``load``: commands that decide whether kernels are
  loaded; ``are_loaded``, the question;
- ``set_threads``, ``threads``: how many threads code one update;
- ``measure``: the scales of an update, on whichever path;
- ``rotate``, ``unrotate``, ``draw_share``, ``add_clipped``, ``add_products``: the steps of private
  sums;
- ``body_bytes``, ``encode_body``, ``decode_body``, ``add_bodies``: a body by compiled kernels,
  ``rotate_rows``, ``unrotate_row``, ``codeword_scores``, ``add_codewords``: ``sphere``;
  only after ``are_loaded`` has answered True;

and beside it ``kernels.recipe`` (a scheme as kernels need it) and ``kernels.device`` (updates on a
GPU). ``kernels.cpu`` and ``kernels.gpu`` are behind the door. Imports ``wire`` and below.
"""

from __future__ import annotations

import logging
import os
import sys
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from jopeq.kernels.cache import is_compiled, mark_compiled
from jopeq.kernels.threads import set_threads, threads
from jopeq.wire.entries import PLAIN_SUMS, Entries, Limits, Sums
from jopeq.wire.scaling import Scale, Scaling

if TYPE_CHECKING:
    from jopeq.kernels.cpu.codec import add_bodies, body_bytes, decode_body, encode_body
    from jopeq.kernels.cpu.codewords import (
        add_codewords,
        codeword_scores,
        rotate_rows,
        unrotate_row,
    )
    from jopeq.kernels.cpu.rotation import rotate, unrotate
    from jopeq.kernels.cpu.share import draw_share
    from jopeq.kernels.cpu.totals import add_clipped, add_products
    from jopeq.kernels.device import DeviceEntries

__all__ = [
    "MODES",
    "add_bodies",
    "add_clipped",
    "add_codewords",
    "add_products",
    "are_loaded",
    "body_bytes",
    "codeword_scores",
    "decode_body",
    "draw_share",
    "encode_body",
    "expect",
    "load",
    "measure",
    "note",
    "prepare",
    "rotate",
    "rotate_rows",
    "set_threads",
    "threads",
    "unrotate",
    "unrotate_row",
    "use",
]

MODES = ("auto", "on", "off")
_WORTH_LOADING = 1 << 25  # entries: what the plain path codes in the time of loading
_WORTH_COMPILING = 1 << 29
_LAST = "jopeq.kernels.cpu.totals"  # of the modules that ``load`` imports
_LAZY = {
    **dict.fromkeys(("add_bodies", "body_bytes", "decode_body", "encode_body"), "codec"),
    **dict.fromkeys(
        ("add_codewords", "codeword_scores", "unrotate_row", "rotate_rows"), "codewords"
    ),
    **dict.fromkeys(("rotate", "unrotate"), "rotation"),
    "draw_share": "share",
    **dict.fromkeys(("add_clipped", "add_products"), "totals"),
}

_mode: str | None = None
_announced, _seen = 0, 0  # entries
_LOG = logging.getLogger("jopeq")


def use(mode: str | None) -> None:
    """Choose "auto" (kernels when they pay), "on" or "off"; None takes JOPEQ_KERNELS again.

    >>> use("off"); note(1 << 40); are_loaded()
    False
    >>> use(None)
    """
    global _mode
    if mode is not None:
        _check(mode, "mode")
    _mode = mode


def expect(entries: int) -> None:
    """Announce entries to come, so that "auto" decides before it has seen them."""
    global _announced
    _announced += entries


def prepare(entries: int) -> None:
    """Announce entries to come, and load or compile kernels now if that pays: not amid the work."""
    expect(entries)
    is_new = _LAST not in sys.modules and not is_compiled() and _announced >= _WORTH_COMPILING
    if is_new and _current_mode() == "auto" and _is_available():
        _LOG.warning("compiling kernels, once for this machine: this may take a minute")
    note(0)


def note(entries: int) -> None:
    """Count entries that are about to be coded, and load kernels once that pays.

    Kernels are compiled for announced entries alone: nobody waits a minute amid unannounced work.
    """
    global _seen
    mode = _mode or _current_mode()
    if mode == "off" or _LAST in sys.modules:
        return
    if mode == "on":
        load()
        return
    _seen += entries
    if _announced + _seen < _WORTH_LOADING:
        return
    is_worth_it = is_compiled() or _announced >= _WORTH_COMPILING
    if not is_worth_it and _seen >= _WORTH_COMPILING > _seen - entries:
        _LOG.warning(
            "kernels would pay by now, and are not compiled: run `jopeq doctor --warmup` once"
        )
    if is_worth_it and _is_available():
        load()


def are_loaded() -> bool:
    """Whether kernels code: they are in memory and not switched off."""
    return _LAST in sys.modules and (_mode or _current_mode()) != "off"


@lru_cache(maxsize=1)
def load() -> bool:
    """Load all CPU kernels, compiling them when no process has done so before."""
    try:
        # importing compiles
        from jopeq.kernels.cpu import codec, codewords, rotation, share, totals  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"compiled kernels need Numba ({error}): pip install 'jopeq[fast]', or "
            "JOPEQ_KERNELS=off"
        ) from error
    mark_compiled()
    return True


def measure(
    entries: Entries | DeviceEntries,
    scaling: Scaling | None,
    dimension: int,
    limits: Limits | None = None,
) -> list[Scale]:
    """One scale for each group of tensors; invalid entries are replaced, or else refused.

    Compiled kernels check and add up where they are loaded, else the plain path.
    """
    if not isinstance(entries, Entries):
        return entries.measure(scaling, dimension, limits)
    sums: Sums = PLAIN_SUMS
    if are_loaded():
        from jopeq.kernels.cpu.measure import CompiledSums

        sums = CompiledSums()
    is_measured = scaling is not None and scaling.clip is None and not scaling.center
    energies = entries.screen(limits, sums, with_energies=is_measured)
    return [] if scaling is None else scaling.measure(entries, dimension, energies, sums)


def __getattr__(name: str) -> Any:
    """The functions that code bodies: importing them compiles kernels, so only when asked for."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"jopeq.kernels.cpu.{_LAZY[name]}"), name)
    globals()[name] = found  # from now on nobody asks here
    return found


@lru_cache(maxsize=1)
def _is_available() -> bool:
    """Whether Numba can be imported: it may be missing, or too old for this NumPy."""
    try:
        import numba  # noqa: F401
    except ImportError:
        return False
    return True


def _current_mode() -> str:
    global _mode
    if _mode is None:
        _mode = _check(os.environ.get("JOPEQ_KERNELS", "auto"), "JOPEQ_KERNELS")
    return _mode


def _check(mode: str, name: str) -> str:
    if mode not in MODES:
        raise ValueError(f"{name} must be one of {', '.join(MODES)}, got {mode!r}")
    return mode
