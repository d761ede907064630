"""Updates that lie on a GPU: measured and encoded there, decoded and added up there.

Only packed bytes cross to the host. Nothing here imports torch before a tensor has been seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jopeq.errors import PayloadError, UpdateError
from jopeq.wire.entries import Limits, is_tensor

if TYPE_CHECKING:
    from jopeq.kernels.recipe import Recipe
    from jopeq.random.streams import PrivateStream, SharedStream
    from jopeq.wire.scaling import Scale, Scaling


def common_device(values: Iterable[Any]) -> Any:
    """The GPU that all these tensors are on; None when there is none."""
    device = None
    for value in values:
        is_there = is_tensor(value) and value.device.type == "cuda"
        if not is_there or device not in (None, value.device):
            return None
        device = value.device
    return device


def can_code(recipe: Recipe | None, device: Any) -> bool:
    """True if GPU kernels run on this device and know this recipe."""
    import torch

    from jopeq.kernels.gpu import arguments

    return arguments.uses_triton(torch.device(device)) and arguments.supports(recipe)


@dataclass
class DeviceEntries:
    """The ``Entries`` of float tensors on one GPU."""

    names: tuple[str, ...]
    tensors: tuple[Any, ...]
    invalid: int = 0  # entries that were replaced

    @property
    def device(self) -> Any:
        return self.tensors[0].device

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(tensor.shape) for tensor in self.tensors)

    @property
    def count(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes)

    def measure(
        self, scaling: Scaling | None, dimension: int, limits: Limits | None = None
    ) -> list[Scale]:
        """One scale for each group of tensors; with a clip, ``encode`` looks for bad entries."""
        from jopeq.kernels.gpu.measure import is_within, measure

        if scaling is None:
            return []
        try:
            scales = measure(scaling, self.tensors, dimension, self.names)
            if limits is None or is_within(limits, scaling, scales, self.count):
                return scales
        except UpdateError:
            if limits is None:
                raise
        self._replace_invalid(limits)
        return measure(scaling, self.tensors, dimension, self.names)

    def _replace_invalid(self, limits: Limits) -> None:
        from jopeq.kernels.gpu.measure import replaced

        self.tensors, counts = zip(*[replaced(x, limits) for x in self.tensors], strict=True)
        self.invalid += sum(counts)

    def encode(
        self,
        recipe: Recipe,
        scales: list[Scale],
        shared: SharedStream,
        private: PrivateStream,
        limits: Limits | None = None,
    ) -> tuple[bytes, int, int]:
        """The body, and how many samples were clipped and overloaded."""
        from jopeq.kernels.gpu.codec import encode_body

        keys = (shared.key_words.tobytes(), private.key_words.tobytes())
        try:
            return encode_body(recipe, self.tensors, scales, *keys, names=self.names)
        except UpdateError:
            if limits is None:
                raise
        self._replace_invalid(limits)  # nothing of the first attempt left, so the keys serve again
        return encode_body(recipe, self.tensors, scales, *keys, names=self.names)


def add_clipped(rows: Any, clip: float, shrunk: float, total: Any) -> bool:
    """Add the integers of clipped rows to ``total`` by GPU kernels; False where they cannot."""
    from jopeq.kernels.gpu import totals

    if not totals.can_add(rows):
        return False
    totals.add_clipped(rows, clip, shrunk, total)
    return True


def decode_body(
    recipe: Recipe,
    body: memoryview,
    sizes: tuple[int, ...],
    scales: list[Scale],
    shared: SharedStream,
    device: Any,
) -> Any:
    """All entries of a body as a flat float32 tensor on the device."""
    import torch

    from jopeq.kernels.gpu.codec import decode_body as decode

    key = shared.key_words.tobytes()
    return decode(recipe, body, sizes, scales, key, torch.device(device))


def add_body(
    total: Any,
    recipe: Recipe,
    body: memoryview,
    sizes: tuple[int, ...],
    scales: list[Scale],
    shared: SharedStream,
    weight: float,
) -> None:
    """Add weight·update to a flat float64 sum on a device; a bad body adds nothing."""
    from jopeq.kernels.gpu.codec import decode_into, is_safe

    if is_safe(recipe, scales):
        decode_into(total, recipe, body, sizes, scales, shared.key_words.tobytes(), weight)
    else:  # a letter could leave float32: ``decode_body`` checks
        total += weight * decode_body(recipe, body, sizes, scales, shared, total.device).double()


def tensor_of(values: Any, device: Any) -> Any:
    """An array decoded on the host, as a tensor on the device."""
    import torch

    try:
        return torch.from_numpy(values).to(device)
    except RuntimeError as error:
        raise PayloadError(f"device {device!r} cannot hold the update: {error}") from error
