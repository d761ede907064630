"""The entries of an update, arrays or torch tensors, read in chunks of one flat row.

Torch is not imported. Chunks are copied, the whole update never is.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from itertools import accumulate
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jopeq.errors import UpdateError

Array = NDArray[np.float64]
ChunkSums = Callable[[NDArray[Any], float | None], list[float]]

READ_CHUNK = 1 << 16
MAX_AXES = 32
BFLOAT16 = np.dtype([("bits", "<u2")])  # the upper halves of float32, widened chunk by chunk
LARGEST = float(np.finfo(np.float32).max)
LANES = 512
_ROWS = 32  # of lanes, added together
_SIZE, _SHAPE = attrgetter("size"), attrgetter("shape")


def lane_sum(values: Array) -> float:
    """Add up in the order of every backend: ``LANES`` sums in parallel, then by halving.

    >>> lane_sum(np.arange(1000.0))
    499500.0
    """
    return _lane_sum(values, lambda block, out: np.copyto(out, block))


def _lane_sum(values: NDArray[Any], fill: Callable[[NDArray[Any], Array], object]) -> float:
    """``lane_sum`` of ``fill``'s results, a block at a time: fresh memory would cost more."""
    room = np.zeros((1 + _ROWS, LANES))  # the sum so far, and what is added to it
    for start in range(0, len(values), _ROWS * LANES):
        block = values[start : start + _ROWS * LANES]
        rows, rest = divmod(len(block), LANES)
        fill(block, room[1:].reshape(-1)[: len(block)])
        if rest:
            rows += 1
            room[rows, rest:] = 0.0
        # along the slow axis NumPy adds row after row; along the other it would choose an order
        room[0] = np.add.reduce(room[: 1 + rows], axis=0)
    lanes = room[0]
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = lanes[:half] + lanes[half:]
    return float(lanes[0])


class Limits(NamedTuple):
    """Replacements for invalid entries: ±``instead`` beyond ±``largest``, and 0 for NaN.

    Each entry is judged alone: otherwise one sample would influence what is sent of the next.
    """

    largest: float = LARGEST
    instead: float = LARGEST

    def apply(self, entries: Array) -> Array:
        numbers = np.where(np.isnan(entries), 0.0, entries)
        is_fine = np.abs(numbers) <= self.largest
        return np.where(is_fine, numbers, np.copysign(self.instead, numbers))


class Entries:
    """Named float tensors, concatenated in order."""

    def __init__(self, names: tuple[str, ...], tensors: tuple[NDArray[Any], ...]) -> None:
        self.names, self.tensors = names, tensors
        self.sizes = tuple(map(_SIZE, tensors))
        self.shapes: tuple[tuple[int, ...], ...] = tuple(map(_SHAPE, tensors))
        self.ends = list(accumulate(self.sizes))  # of each tensor in the concatenation
        self.count = sum(self.sizes)
        self.invalid = 0  # entries that were replaced
        self.chunk_sums: ChunkSums | None = None  # compiled ``add_up``, of entries in place

    @classmethod
    def of(cls, update: Any) -> Entries:
        """An array under the empty name, or the float arrays of a mapping."""
        names, values = select_sent(update)
        return cls(names, tuple(map(as_float_array, values, names)))

    @cached_property
    def rows(self) -> list[NDArray[Any] | None]:
        """The entries of each tensor in place; None if kernels cannot read them."""
        return list(map(_plain_row, self.tensors))

    def chunks(self, tensor: int) -> Iterator[Array]:
        """The entries of one tensor as float64, a chunk at a time; callers silence NumPy."""
        return (piece.astype(np.float64) for piece in self.pieces(tensor))

    def pieces(self, tensor: int) -> Iterator[NDArray[Any]]:
        """``chunks`` as floats of any precision, copied only if they are not contiguous."""
        size = self.tensors[tensor].size
        for start in range(0, size, READ_CHUNK):
            yield self._piece(tensor, start, min(start + READ_CHUNK, size))

    def _piece(self, tensor: int, start: int, stop: int) -> NDArray[Any]:
        array = self.tensors[tensor]
        is_flat = array.flags.c_contiguous
        piece = array.reshape(-1)[start:stop] if is_flat else np.asarray(array.flat[start:stop])
        if piece.dtype == BFLOAT16:
            piece = (piece["bits"].astype(np.uint32) << np.uint32(16)).view(np.float32)
        return piece

    def read(self, start: int, stop: int) -> Iterator[tuple[int, Array]]:
        """Entries start…stop of all, as (tensor, piece) pairs; callers silence NumPy."""
        for tensor, low, high in overlaps(self.ends, start, stop):
            yield tensor, self._piece(tensor, low, high).astype(np.float64)

    def row(self, start: int, stop: int) -> tuple[int, NDArray[Any]] | None:
        """Entries start…stop in place, and their tensor; None if kernels cannot read them."""
        tensor = bisect_right(self.ends, start)
        row, begin = self.rows[tensor], self.ends[tensor] - self.sizes[tensor]
        if row is None or stop > self.ends[tensor]:
            return None
        return tensor, row[start - begin : stop - begin]

    def add_up(self, tensor: int, mean: float | None = None) -> list[float]:
        """Σ entry of every chunk, or Σ (entry − mean)² given a mean."""
        if self.chunk_sums is not None and (row := self.rows[tensor]) is not None and len(row):
            return self.chunk_sums(row, mean)

        def squares(block: NDArray[Any], out: Array) -> None:
            np.copyto(out, block)
            if mean:
                out -= mean
            np.multiply(out, out, out=out)

        chunks = self.pieces(tensor)
        return [lane_sum(chunk) if mean is None else _lane_sum(chunk, squares) for chunk in chunks]

    def _look(self, tensor: int, largest: float) -> list[float] | None:
        """None if an entry is NaN or beyond ±largest, else Σ entry² of every chunk."""
        found = self.add_up(tensor, 0.0)
        # an energy of at most largest² shows that no entry is larger; otherwise look at each
        if not sum(found) <= largest * largest:
            for chunk in self.chunks(tensor):
                if not (np.abs(chunk) <= largest).all():
                    return None
        return found

    def screen(self, limits: Limits | None) -> list[list[float]]:
        """Σ entry² of every chunk; invalid entries are replaced, or without limits refused."""
        largest = LARGEST if limits is None else limits.largest
        found = []
        for index in range(len(self.tensors)):
            energies = self._look(index, largest)
            if energies is None:
                if limits is None:
                    raise self._invalid(index)
                self._replace(index, limits)
                # replacements are within the limits, so this look finds the energies
                energies = self._look(index, LARGEST)
            found.append(energies or [])
        return found

    def _replace(self, index: int, limits: Limits) -> None:
        tensor = self.tensors[index]
        # float16 may be too narrow for the entries that are put in
        copy = np.empty(tensor.size, np.float64 if tensor.dtype.itemsize > 4 else np.float32)
        for number, chunk in enumerate(self.chunks(index)):
            start = number * READ_CHUNK
            copy[start : start + len(chunk)] = limits.apply(chunk)
            self.invalid += int(np.count_nonzero(~(np.abs(chunk) <= limits.largest)))
        shaped = copy.reshape(tensor.shape)
        self.tensors = (*self.tensors[:index], shaped, *self.tensors[index + 1 :])
        self.rows[index] = copy

    def _invalid(self, index: int) -> UpdateError:
        """Name the first invalid entry of a tensor, with its position."""
        bad = np.concatenate([~(np.abs(chunk) <= LARGEST) for chunk in self.chunks(index)])
        first = int(np.argmax(bad))
        value = self._piece(index, first, first + 1).astype(np.float64)[0]
        where = tuple(map(int, np.unravel_index(first, self.shapes[index])))
        return UpdateError(
            f"{label(self.names[index])} holds {value} at position {where}: only finite entries "
            "within float32 can be encoded; nothing was sent"
        )


def select_sent(update: Any) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """Names and values that a payload carries: an update, or all floats of a mapping."""
    if not isinstance(update, Mapping):
        return ("",), (update,)
    state = dict(update.items())  # another thread may add to it
    check_flat(state)
    named = {name: value for name, value in state.items() if not is_left_out(value)}
    names = tuple(named)
    _check_names(names)
    return names, tuple(named.values())


def check_flat(state: Mapping[str, Any]) -> None:
    """Raise if a value is itself a mapping, as in checkpoints of training scripts."""
    nested = [name for name, value in state.items() if isinstance(value, Mapping)]
    if nested:
        arrays = {name: sum(hasattr(v, "shape") for v in state[name].values()) for name in nested}
        model = max(nested, key=arrays.__getitem__)
        raise UpdateError(
            f"the state is nested, {model!r} holds a mapping and no array: pass state[{model!r}], "
            "or save it in a separate file"
        )


def overlaps(ends: list[int], start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Yield (tensor, low, high) for each tensor that entries start…stop touch.

    ``ends`` are the cumulative sizes of the tensors; low and high count from the tensor's start.
    """
    for tensor in range(bisect_right(ends, start), len(ends)):
        begin = ends[tensor - 1] if tensor else 0
        if begin >= stop:
            return
        low, high = max(start, begin), min(stop, ends[tensor])
        if low < high:
            yield tensor, low - begin, high - begin


def is_tensor(value: Any) -> bool:
    """True if ``value`` is a torch tensor, told without importing torch."""
    kind: Any = type(value)
    return _is_tensor_class(kind)


@lru_cache(maxsize=64)
def _is_tensor_class(kind: Any) -> bool:
    roots = [base.__module__.split(".")[0] for base in kind.__mro__]  # a subclass is one too
    return "torch" in roots and hasattr(kind, "detach")


def _plain_row(array: NDArray[Any]) -> NDArray[Any] | None:
    """The entries in place, if they are contiguous native float32 or float64."""
    dtype, flags = array.dtype, array.flags
    is_plain = dtype.char in "fd" and dtype.isnative and flags.c_contiguous and flags.aligned
    return array.reshape(-1) if is_plain else None


def is_short_float(value: Any) -> bool:
    """True if a tensor holds floats and has few enough axes to be encoded in place."""
    return bool(value.is_floating_point()) and value.ndim <= MAX_AXES


def is_left_out(value: Any) -> bool:
    """True if ``value`` is an array or tensor of integers or booleans, which are never sent."""
    if is_tensor(value):
        return not (value.is_floating_point() or value.is_complex())
    return np.asarray(value).dtype.kind in "iub"


def as_float_array(value: Any, name: str) -> NDArray[Any]:
    """``value`` as a NumPy array in its own precision; rare types become float32."""
    is_array = isinstance(value, np.ndarray) or not is_tensor(value)
    array = np.asarray(value) if is_array else _host_array(value, name)
    if array.dtype.kind == "V" and array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    if array.dtype.kind != "f" and array.dtype is not BFLOAT16:
        raise _not_float(name, str(array.dtype))
    if array.ndim > MAX_AXES:
        raise UpdateError(
            f"{label(name)} has {array.ndim} axes, at most {MAX_AXES} can be encoded: reshape it"
        )
    return array


def _host_array(tensor: Any, name: str) -> NDArray[Any]:
    torch = sys.modules["torch"]  # a tensor has been seen, so it is there
    if not tensor.is_floating_point():
        raise _not_float(name, str(tensor.dtype))
    tensor = tensor.detach().cpu().resolve_neg()
    if tensor.dtype == torch.bfloat16:
        return np.asarray(tensor.view(torch.int16).numpy().view(BFLOAT16))
    if tensor.dtype not in (torch.float16, torch.float32, torch.float64):
        tensor = tensor.float()
    return np.asarray(tensor.numpy())


def _not_float(name: str, dtype: str) -> UpdateError:
    return UpdateError(
        f"{label(name)} has dtype {dtype}, only floats can be encoded: convert it with "
        ".astype('float32') (arrays) or .float() (tensors), or leave it out"
    )


@lru_cache(maxsize=16)
def _check_names(names: tuple[Any, ...]) -> None:
    for name in names:
        try:
            name.encode()
        except (AttributeError, UnicodeEncodeError) as error:
            raise UpdateError(
                f"the name of a tensor must be text, got {name!r}: rename it"
            ) from error


def label(name: str) -> str:
    """Name a tensor in an error message."""
    return f"tensor {name!r}" if name else "the update"
