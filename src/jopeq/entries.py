"""The entries of an update: one array or many, read as one flat row of numbers, in chunks.

Anything ``numpy.asarray`` takes is accepted, and torch tensors of any float type without importing
torch. Chunks are copied, the whole never is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.errors import UpdateError

Array = NDArray[np.float64]

READ_CHUNK = 1 << 18
MAX_AXES = 32
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Entries:
    """Named float tensors, concatenated in order."""

    names: tuple[str, ...]
    tensors: tuple[NDArray[Any], ...]

    @classmethod
    def of_update(cls, update: Any) -> Entries:
        """A single array, under the empty name."""
        return cls(("",), (as_float_array(update, ""),))

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Entries:
        """The float arrays of a mapping; integer and boolean ones are left out."""
        named = {name: value for name, value in state.items() if not is_left_out(value)}
        for name in named:
            _check_name(name)
        arrays = tuple(as_float_array(value, name) for name, value in named.items())
        return cls(tuple(named), arrays)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tensor.shape for tensor in self.tensors)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(tensor.size for tensor in self.tensors)

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(self.sizes))

    @property
    def count(self) -> int:
        return sum(self.sizes)

    def chunks(self, tensor: int) -> Iterator[Array]:
        """The entries of one tensor as float64, a chunk at a time."""
        size = self.tensors[tensor].size
        for start in range(0, size, READ_CHUNK):
            yield self._read(tensor, start, min(start + READ_CHUNK, size))

    def _read(self, tensor: int, start: int, stop: int) -> Array:
        array = self.tensors[tensor]
        is_flat = array.flags.c_contiguous
        piece = array.reshape(-1)[start:stop] if is_flat else np.asarray(array.flat[start:stop])
        with np.errstate(invalid="ignore"):  # a signalling NaN; ``check_finite`` refuses it
            return piece.astype(np.float64)

    def read(self, start: int, stop: int) -> Iterator[tuple[int, Array]]:
        """Entries start…stop of the concatenation, as (tensor, piece) pairs."""
        for tensor, low, high in overlaps(self._ends, start, stop):
            yield tensor, self._read(tensor, low, high)

    def check_finite(self) -> None:
        """Refuse NaN, inf and what float32 cannot hold, by name and position."""
        for index, (name, tensor) in enumerate(zip(self.names, self.tensors, strict=True)):
            for number, chunk in enumerate(self.chunks(index)):
                bad = ~(np.abs(chunk) <= _LARGEST)
                if bad.any():
                    first = int(np.argmax(bad))
                    where = np.unravel_index(number * READ_CHUNK + first, tensor.shape)
                    place = tuple(map(int, where))
                    raise UpdateError(
                        f"{_label(name)} holds {chunk[first]} at position {place}: "
                        "only finite numbers within float32 can be encoded; nothing was sent"
                    )


def overlaps(ends: list[int], start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """(tensor, low, high) of each tensor that entries start…stop touch, in its own entries.

    ``ends`` are the cumulative sizes of the tensors.

    >>> list(overlaps([3, 3, 8], 1, 5))
    [(0, 1, 3), (2, 0, 2)]
    """
    for tensor in range(bisect_right(ends, start), len(ends)):
        begin = ends[tensor - 1] if tensor else 0
        if begin >= stop:
            return
        low, high = max(start, begin), min(stop, ends[tensor])
        if low < high:
            yield tensor, low - begin, high - begin


def is_tensor(value: Any) -> bool:
    """Whether ``value`` is a torch tensor, told without importing torch."""
    return type(value).__module__.split(".")[0] == "torch" and hasattr(value, "detach")


def is_left_out(value: Any) -> bool:
    """Whether ``value`` is an array or tensor of integers or booleans, which no state sends."""
    if is_tensor(value):
        return not (value.is_floating_point() or value.is_complex())
    return np.asarray(value).dtype.kind in "iub"


def as_float_array(value: Any, name: str) -> NDArray[Any]:
    """``value`` as a NumPy float array of its own precision (bfloat16 becomes float32)."""
    if is_tensor(value):
        tensor = value.detach().cpu()
        if not tensor.is_floating_point():
            raise _not_float(name, str(tensor.dtype))
        if str(tensor.dtype) not in ("torch.float16", "torch.float32", "torch.float64"):
            tensor = tensor.float()
        value = tensor.resolve_neg().numpy()
    array = np.asarray(value)
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    if not np.issubdtype(array.dtype, np.floating):
        raise _not_float(name, str(array.dtype))
    if array.ndim > MAX_AXES:
        raise UpdateError(
            f"{_label(name)} has {array.ndim} axes, at most {MAX_AXES} can be encoded: reshape it"
        )
    return array


def _not_float(name: str, dtype: str) -> UpdateError:
    return UpdateError(
        f"{_label(name)} has dtype {dtype}, only floats can be encoded: convert it with "
        ".astype('float32') (arrays) or .float() (tensors), or leave it out"
    )


def _check_name(name: Any) -> None:
    try:
        name.encode()
    except (AttributeError, UnicodeEncodeError) as error:
        raise UpdateError(f"the name of a tensor must be text, got {name!r}: rename it") from error


def _label(name: str) -> str:
    return f"tensor {name!r}" if name else "the update"
