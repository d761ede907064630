"""How loops are compiled: without the interpreter's lock, cached on disk, nothing contracted.

Products and sums must round one by one, as NumPy does, or the bytes would differ: so no fast-math.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import config, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from jopeq.kernels.cache import cache_folder

Function = Callable[..., Any]

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}

U8, U16, U32, U64 = types.uint8, types.uint16, types.uint32, types.uint64
I64, F32, F64 = types.int64, types.float32, types.float64
FLAG = types.boolean


def read(element: Any) -> Any:
    """The type of an array a kernel only reads (a user's may be read-only)."""
    return types.Array(element, 1, "C", readonly=True)


def write(element: Any) -> Any:
    """The type of an array a kernel writes."""
    return types.Array(element, 1, "C")


def kernel(*arguments: Any, returns: Any = types.void) -> Callable[[Function], Any]:
    """Compile for these argument types now, or load what was compiled before.

    A tuple of types among the arguments makes a version of the kernel for each.
    """
    count = max((len(one) for one in arguments if isinstance(one, tuple)), default=1)
    columns = [one if isinstance(one, tuple) else (one,) * count for one in arguments]
    signatures = [returns(*one) for one in zip(*columns, strict=True)]

    def compiled(function: Function) -> Any:
        with _cached() as is_cached:
            return njit(signatures, cache=is_cached, **_OPTIONS)(function)

    return compiled


@contextmanager
def _cached() -> Iterator[bool]:
    """Let Numba keep code where ``cache`` says; its own place knows nothing of changed parts."""
    folder = cache_folder()
    before = config.CACHE_DIR
    config.CACHE_DIR = "" if folder is None else str(folder)
    try:
        yield folder is not None
    finally:
        config.CACHE_DIR = before


def part(function: Function) -> Any:
    """A piece of a kernel, compiled into the kernels that call it."""
    return njit(function, **_OPTIONS)


def vector_at(context: Any, builder: Any, kind: Any, array: Any, start: Any, vector: Any) -> Any:
    """Where in an array of type ``kind`` a vector begins, for intrinsics."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [start]), vector.as_pointer())


def splat(builder: Any, value: Any, vector: Any) -> Any:
    """A vector that holds the value everywhere."""
    result, index = ir.Constant(vector, ir.Undefined), ir.IntType(32)
    for i in range(vector.count):
        result = builder.insert_element(result, value, index(i))
    return result


def _bitcast(signature: Any, kind: Any) -> Any:
    def generate(context: Any, builder: Any, types: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], kind)

    return signature, generate


@intrinsic
def as_float(typing: Any, bits: Any) -> Any:
    """The float64 with these bits."""
    return _bitcast(F64(U64), ir.DoubleType())


@intrinsic
def as_bits(typing: Any, value: Any) -> Any:
    """The bits of a float64."""
    return _bitcast(U64(F64), ir.IntType(64))


@intrinsic
def as_bits32(typing: Any, value: Any) -> Any:
    """The bits of a float32."""
    return _bitcast(types.int32(F32), ir.IntType(32))


@intrinsic
def leading_zeros(typing: Any, bits: Any) -> Any:
    """Leading zeros of 64 bits; 64 for none set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], cgutils.false_bit)

    return I64(U64), generate
