"""A payload that was verified and whose header was read, but whose body is not decoded yet."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from jopeq.errors import PayloadError, StateMismatchError
from jopeq.kernels.device import common_device
from jopeq.random.streams import SharedStream
from jopeq.wire.entries import is_left_out, is_tensor
from jopeq.wire.payload import Header
from jopeq.wire.scaling import Scale

if TYPE_CHECKING:
    from jopeq.schemes.codec import Codec


@dataclass(frozen=True)
class Opened:
    """A verified payload with its header. ``Scheme.open`` makes it.

    A body may name far more entries than it has bytes: compare ``header`` with what you expect
    before you decode.
    """

    codec: Codec[Any]
    header: Header
    body: memoryview
    scales: list[Scale]
    shared: SharedStream

    @property
    def sizes(self) -> tuple[int, ...]:
        """Entries of each tensor."""
        return self.header.sizes

    def check_size(self) -> None:
        """Raise ``PayloadError`` unless the body can hold as many entries as the header names."""
        self.codec.check_size(len(self.body), sum(self.sizes))

    def decode(self, device: Any = None) -> Any:
        """All entries in one row: a float32 array, or a tensor on ``device``."""
        return self.codec.decode(self, device)

    def decode_like(self, like: Mapping[str, Any]) -> dict[str, Any]:
        """The state in the payload, with the names, shapes, types and devices of ``like``.

        What payloads leave out, such as integers and booleans, is 0: an update does not change it.
        """
        sent = {name: value for name, value in like.items() if not is_left_out(value)}
        expected = {name: tuple(np.shape(value)) for name, value in sent.items()}
        self.check_fits(expected)
        pieces = self.header.arrange(self.decode(common_device(sent.values())))
        if not isinstance(pieces, dict):
            pieces = {"": pieces}
        with np.errstate(over="ignore"):
            return {
                name: _as_type_of(v, pieces[name], name) if name in pieces else zeros_like(v)
                for name, v in like.items()
            }

    def check_fits(self, expected: Mapping[str, tuple[int, ...]]) -> None:
        """Raise ``StateMismatchError`` unless the header names these tensors, each once."""
        received = dict(zip(self.header.names, self.header.shapes, strict=True))
        if len(received) != len(self.header.names):
            raise StateMismatchError("the payload names a tensor twice")
        for name in expected:
            if name not in received:
                raise StateMismatchError(f"the payload lacks tensor {name!r}")
        for name, shape in received.items():
            if name not in expected:
                raise StateMismatchError(f"the payload holds tensor {name!r:.80}, not expected")
            if shape != expected[name]:
                raise StateMismatchError(
                    f"tensor {name!r} has shape {shape} in the payload, expected {expected[name]}"
                )


def zeros_like(example: Any) -> Any:
    """The update of an array or a tensor that is not sent."""
    return (
        sys.modules["torch"].zeros_like(example) if is_tensor(example) else np.zeros_like(example)
    )


def _as_type_of(example: Any, values: Any, name: str) -> Any:
    """``values``, finite float32, as the kind of array that ``example`` is."""
    library: Any = np
    if is_tensor(example):
        library = sys.modules["torch"]
        copied = values.clone() if is_tensor(values) else library.from_numpy(values.copy())
        result = copied.to(dtype=example.dtype, device=example.device)
    else:
        result = values.astype(np.asarray(example).dtype)
    if result.dtype != library.float32 and not bool(library.isfinite(result).all()):
        raise PayloadError(f"tensor {name!r} holds numbers too large for {result.dtype}")
    return result
