"""A hospital's records as tensors of a public shape and dtype, every record read alone.

What does not fit, such as another shape, a missing label or text that is no number, makes its own
record a bad one, which counts as zeros. It changes no other record and raises nothing.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from jopeq.sums.record_sample import Indices, read_patients

_LOG = logging.getLogger("jopeq")

Rows = tuple[Tensor, ...]
"""One entry for each record in every tensor."""

_NUMBERS = "biuf"  # NumPy's kinds
_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True)
class Records:
    """Arguments of a model, then targets; ``blank`` is one record, which stands where none is."""

    parts: Rows
    blank: Rows
    is_good: NDArray[np.bool_]
    owners: Indices | None = None

    def of_patients(self, most_rows: int | None) -> Indices:
        """(patients, most_rows): the first good records of each patient; −1 where there is none."""
        if (most_rows is None) != (self.owners is None):
            raise ValueError("group and most_rows belong together: give both, or neither")
        owners = np.arange(len(self.is_good)) if self.owners is None else self.owners
        numbered = np.flatnonzero(self.is_good & (owners >= 0))
        patients = np.unique(owners[numbered], return_inverse=True)[1]
        order, sizes = np.argsort(patients, kind="stable"), np.bincount(patients)
        ranks = np.arange(len(patients)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        found = np.full((len(sizes), most_rows or 1), -1, dtype=np.int64)
        is_kept = ranks < found.shape[1]
        found[patients[order][is_kept], ranks[is_kept]] = numbered[order[is_kept]]
        if bad := len(self.is_good) - int(is_kept.sum()):
            told = "%d of the %d records count as zeros: unlike the example, or beyond most_rows"
            _LOG.warning(told, bad, len(self.is_good))
        return found


def read_example(example: Any) -> Rows:
    """The public record that an app declares: arguments of the model, then the target."""
    try:
        inputs, target = example
        parts = (*inputs, target) if isinstance(inputs, tuple) else (inputs, target)
        return tuple(map(Tensor.detach, map(torch.as_tensor, parts)))
    except Exception as error:
        told = "example must be one record (inputs, target), as (torch.zeros(64), torch.tensor(0))"
        raise ValueError(f"{told}, got {example!r:.200}: {error}") from None


def other_numbers(part: Tensor) -> Tensor:
    """Public numbers unlike a blank's, of the same shape and dtype."""
    numbers = torch.arange(part.numel(), device=part.device).view(part.shape)
    return (numbers.sin().abs() if part.is_floating_point() else numbers % 2).to(part.dtype)


def read_records(inputs: Any, targets: Any, example: Any = None, group: Any = None) -> Records:
    """All records, converted one by one to the example's shapes and dtypes.

    Without an example the shapes and dtypes of the tensors or arrays are taken for public.
    """
    parts = (*inputs, targets) if isinstance(inputs, tuple) else (inputs, targets)
    if example is None:
        parts = tuple(map(_as_tensor, parts))
        blank = tuple([part.new_zeros(part.shape[1:]) for part in parts])
    else:
        blank = read_example(example)
    try:
        lengths = list(map(len, parts))
    except TypeError:  # a single number
        lengths = []
    if len(lengths) != max(2, len(blank)) or len(set(lengths)) > 1:
        raise ValueError(
            f"inputs ({len(blank) - 1} here) and targets must hold one entry for each record, got "
            f"lengths {lengths}: stack the records along the first axis"
        )
    whole, good = zip(*map(_read_part, parts, blank), strict=True)
    is_good = np.logical_and.reduce(good)
    owners = None if group is None else read_patients(group, len(is_good))
    if owners is not None:
        is_good &= owners >= 0
    return Records(whole, blank, is_good, owners)


def _as_tensor(values: Any) -> Tensor:
    is_list = isinstance(values, list) and any(isinstance(one, Tensor) for one in values)
    try:
        return (torch.stack(values) if is_list else torch.as_tensor(values)).detach()
    except (RuntimeError, TypeError, ValueError) as error:
        told = "records are not numbers of one shape: declare it by example=(inputs, target)"
        raise ValueError(f"{told}, so that others count as zeros: {error}") from None


def _read_part(values: Any, like: Tensor) -> tuple[Tensor, NDArray[np.bool_]]:
    """Entries of the example's shape and dtype, and which are good."""
    if not isinstance(values, Tensor | list | tuple):
        values = np.asarray(values)
        if values.dtype.kind in _NUMBERS and values.dtype.isnative:
            values = torch.from_numpy(np.array(values))
    if isinstance(values, Tensor) and values.shape[1:] == like.shape and not values.is_complex():
        whole, fits = _cast(values.detach(), like.dtype)
        return whole, fits.reshape(len(fits), like.numel()).all(1).cpu().numpy()
    found = torch.zeros((len(values), *like.shape), dtype=like.dtype)
    is_good = np.zeros(len(values), dtype=np.bool_)
    for at, value in enumerate(values):
        try:
            one, fits = _cast(_read_entry(value), like.dtype)
            if one.shape == like.shape and bool(fits.all()):
                found[at], is_good[at] = one, True
        except Exception:  # of this record alone
            continue
    return found, is_good


def _read_entry(value: Any) -> Tensor:
    """The numbers of one record: also those that are text or lie in an array of objects."""
    if isinstance(value, Tensor):
        return value.detach().cpu()
    plain = value.tolist() if isinstance(value, np.ndarray) and value.dtype.kind == "O" else value
    if isinstance(plain, str):  # as Booleans are where another record has text
        plain = _BOOLEANS.get(plain.strip().lower(), plain)
    found = np.asarray(plain)
    if found.dtype.kind not in _NUMBERS:
        found = np.asarray(plain, dtype=np.float64)
    return torch.from_numpy(np.array(found, dtype=found.dtype.newbyteorder("=")))


def _cast(values: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Numbers as ``dtype``, and which of them it holds: whole numbers hold no fractions."""
    if dtype.is_floating_point or values.dtype == dtype:
        return values.to(dtype), torch.ones_like(values, dtype=torch.bool)
    held = (0, 1) if dtype == torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    if values.is_floating_point():
        fits = (values == values.floor()) & (values >= float(held[0])) & (values < held[1] + 1.0)
    else:
        wide = values.long()
        fits = (wide >= held[0]) & (wide <= held[1])
    return torch.where(fits, values, torch.zeros_like(values)).to(dtype), fits
