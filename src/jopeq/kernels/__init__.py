"""Fused encode and decode: one pass over memory, on CPU and GPU, with the plain path's bytes.

The plain NumPy path is the specification and always works. Compiled kernels (Numba, installed by
``jopeq[fast]``) take over when they pay: loading them takes about a second, compiling them under
a minute, once for every version and machine; ``jopeq doctor --warmup`` compiles them ahead.
``JOPEQ_KERNELS=auto|on|off`` or ``use`` chooses.

This module is the door for other rooms: modes, threads, ``measure``, and, once ``are_loaded`` has
answered True, the compiled functions that ``kernels.cpu`` lists; where ``kernels.device`` says so,
those of ``kernels.gpu``. ``kernels.recipe`` is a scheme as kernels need it. Imports ``wire`` and
below.
"""

from __future__ import annotations

import logging
import math
import os
from functools import lru_cache
from typing import TYPE_CHECKING

from jopeq.kernels.cache import is_compiled, mark_compiled
from jopeq.kernels.threads import set_threads as set_threads
from jopeq.kernels.threads import threads as threads
from jopeq.wire.entries import Entries, Limits
from jopeq.wire.scaling import Scale, Scaling

if TYPE_CHECKING:
    from jopeq.kernels import cpu as cpu
    from jopeq.kernels.gpu.entries import DeviceEntries

MODES = ("auto", "on", "off")
_WORTH_LOADING = 1 << 25  # entries: what the plain path codes in the time of loading
_WORTH_COMPILING = 1 << 29

_mode: str | None = None
_is_loaded = False
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


def prepare(entries: int) -> None:
    """Announce entries to come, and load or compile kernels now if that pays: not amid the work."""
    global _announced
    _announced += entries
    note(0)


def note(entries: int) -> None:
    """Count entries that are about to be coded, and load kernels once that pays.

    Kernels are compiled for announced entries alone: nobody waits a minute amid unannounced work.
    """
    global _seen
    mode = _current_mode()
    if mode == "off" or _is_loaded:
        return
    if mode == "on":
        load()
        return
    _seen += entries
    if _announced + _seen < _WORTH_LOADING:
        return
    was_compiled = is_compiled()
    if was_compiled or _announced >= _WORTH_COMPILING:
        if _is_available():
            if not was_compiled:
                _LOG.warning("compiling kernels, once for this machine: this may take a minute")
            load()
    elif _seen >= _WORTH_COMPILING > _seen - entries:
        _LOG.warning(
            "kernels would pay by now, and are not compiled: run `jopeq doctor --warmup` once"
        )


def are_loaded() -> bool:
    """True if kernels code: they are in memory and not switched off."""
    return _is_loaded and _current_mode() != "off"


def load() -> None:
    """Load all CPU kernels, compiling them when no process has done so before."""
    global _is_loaded
    if _is_loaded:
        return
    try:
        from jopeq.kernels import cpu  # noqa: F401 (importing compiles)
    except ImportError as error:
        raise ImportError(
            f"compiled kernels need Numba ({error}): pip install 'jopeq[fast]', or "
            "JOPEQ_KERNELS=off"
        ) from error
    mark_compiled()
    _rehearse()
    _is_loaded = True


def _rehearse() -> None:
    """Code a few entries in every way: Numba looks the type of an argument up when it first comes.

    That takes longer than coding ten thousand entries, so it is done while kernels are loaded.
    """
    import numpy as np

    from jopeq.kernels.recipe import Cells, Line, Recipe
    from jopeq.lattice.codebook import LatticeCodebook
    from jopeq.lattice.lattices import Lattice
    from jopeq.noise.law import NoiseRecipe
    from jopeq.random.streams import SEED_BYTES, PrivateStream, SharedStream

    size, scales, shared = 64, [Scale(1.0)], SharedStream(bytes(SEED_BYTES))
    entries = Entries(("",), (np.ones(size, dtype=np.float32),))
    entries.chunk_sums = cpu.chunk_sums
    entries.screen(Limits())
    steps = (
        (Line(1.0, 4), NoiseRecipe("laplace", 1.0, math.inf)),
        (Cells(LatticeCodebook(Lattice("A2"), 16)), NoiseRecipe("t", 1.0, math.inf, 8.0)),
    )
    for step, noise in steps:
        for recipe in (Recipe(step), Recipe(step, noise)):
            body = np.empty(recipe.packing.size(size // recipe.dimension), dtype=np.uint8)
            cpu.encode_body(recipe, entries, scales, shared, PrivateStream(), body)
            cpu.decode_body(recipe, memoryview(bytes(body)), (size,), scales, shared)


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
    if are_loaded():
        entries.chunk_sums = cpu.chunk_sums
    energies = entries.screen(limits)
    return [] if scaling is None else scaling.measure(entries, dimension, energies)


@lru_cache(maxsize=1)
def _is_available() -> bool:
    """True if Numba can be imported: it may be missing, or too old for this NumPy."""
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
