"""Triton when it is there, and harmless stand-ins when it is not, so that every module imports.

The kernels must round as NumPy does: they are launched with ``options``, which forbid fusing a
product and a sum into one rounding. Division and square root of float64 are IEEE's own on a GPU.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from typing import Any

HAS_TRITON = importlib.util.find_spec("triton") is not None

triton: Any = importlib.import_module("triton") if HAS_TRITON else None
tl: Any = importlib.import_module("triton.language") if HAS_TRITON else None

IS_INTERPRETED = HAS_TRITON and os.environ.get("TRITON_INTERPRET") == "1"
"""True if kernels run on the CPU, operation by operation, for tests. Decided at import."""


def options(warps: int) -> dict[str, Any]:
    """The launch options of every kernel."""
    return {} if IS_INTERPRETED else {"num_warps": warps, "enable_fp_fusion": False}


def jit(*arguments: Any, **options: Any) -> Any:
    """``triton.jit``, or the function itself."""
    if HAS_TRITON:
        return triton.jit(*arguments, **options)
    return arguments[0] if arguments else lambda function: function


def constant(value: Any) -> Any:
    """A module's number as kernels want it."""
    return tl.constexpr(value) if HAS_TRITON else value
