"""The base of every way of fitting: a hospital's records, the state between sums, the estimate.

A method has ``messages`` sums, of ``dimension(step)`` entries, for which hospitals are sent arrays
of ``shapes(step)``:

    total     a hospital's exact total for a step, from its records and what it was sent
    (sum)     shares, masks, a noisy total over all hospitals
    advance   the next state, which the server keeps and whose ``sent`` goes to the hospitals
    estimate  the coefficients, once all sums are there

All but ``total`` is post-processing of private sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from jopeq.models.totals import CHUNK, Array


class Records(NamedTuple):
    """One hospital's records as a method takes them; bad ones are zeros. Private."""

    rows: Array  # (records, size), of length at most 1
    targets: Array  # (records, targets)

    def pieces(self) -> Iterator[Records]:
        """These records in chunks."""
        for first in range(0, len(self.rows), CHUNK):
            yield Records(*(one[first : first + CHUNK] for one in self))


@dataclass(frozen=True)
class State:
    """Where a fit stands before sum number ``step``. ``arrays`` has all of it, to be kept on disk.

    ``sent`` goes to the hospitals with the request for that sum; it is public.
    """

    step: int = 0
    sent: Mapping[str, Array] = field(default_factory=dict)
    kept: Mapping[str, Array] = field(default_factory=dict)

    def arrays(self) -> dict[str, Array]:
        """All numbers by name, as ``numpy.savez`` or a Flower record takes them."""
        sent = {f"sent.{name}": one for name, one in self.sent.items()}
        kept = {f"kept.{name}": one for name, one in self.kept.items()}
        return {"step": np.array(float(self.step)), **sent, **kept}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> State:
        """The state of ``arrays``."""
        parts: dict[str, dict[str, Array]] = {"sent": {}, "kept": {}}
        for name in set(arrays) - {"step"}:
            kind, _, rest = name.partition(".")
            parts[kind][rest] = np.asarray(arrays[name], dtype=np.float64)
        return cls(int(arrays["step"]), **parts)


class Estimate(NamedTuple):
    """The findings of a method, in the units of its rows."""

    weights: Array  # (size, outputs)
    centre: Array  # (features,), subtracted from rows of features; or empty
    covariance: Array | None  # (size, size), where there are intervals
    hidden: tuple[str, ...]  # why a coefficient is not told; "" where it is
    figures: dict[str, float]  # noisy: "records", and others


def invert(matrix: Array, floor: float, edge: float, report: Array) -> tuple[Array, Array]:
    """(inverse with eigenvalues of at least ``floor``, which coefficients noise hides).

    A coefficient is hidden where directions of eigenvalues below ``edge`` have 5% of it.
    """
    values, vectors = np.linalg.eigh(matrix)
    inverse = (vectors / np.maximum(values, floor)) @ vectors.T
    lost = ((report @ vectors[:, values < edge]) ** 2).sum(axis=1)
    return inverse, lost >= 0.05 * (report**2).sum(axis=1)
