"""The base of every fitting method: a hospital's records, the state between sums, the estimate.

A method has ``messages`` sums of ``dimension(step)`` entries, for which hospitals are sent arrays
of ``shapes(step)``:

    total     a hospital's exact total for a step, from its records and these arrays
    (sum)     shares, masks, a noisy total over all hospitals
    advance   the next state, which the server keeps and whose ``sent`` goes to the hospitals
    estimate  the coefficients, after all sums

Everything but ``total`` is post-processing of private sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from jopeq.models.totals import CHUNK, Array


class Records(NamedTuple):
    """One hospital's records as rows and targets; bad records are zeros. Private."""

    rows: Array  # (records, size), of length at most 1
    targets: Array  # (records, targets)

    def pieces(self) -> Iterator[Records]:
        for first in range(0, len(self.rows), CHUNK):
            yield Records(*(one[first : first + CHUNK] for one in self))


@dataclass(frozen=True)
class State:
    """The public state of a fit before sum number ``step``; ``arrays`` can be kept on disk.

    ``sent`` goes to the hospitals with the request for that sum.
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
        parts: dict[str, dict[str, Array]] = {"sent": {}, "kept": {}}
        for name in set(arrays) - {"step"}:
            kind, _, rest = name.partition(".")
            parts[kind][rest] = np.asarray(arrays[name], dtype=np.float64)
        return cls(int(arrays["step"]), **parts)


class Estimate(NamedTuple):
    """The result of a method, in the units of its rows."""

    weights: Array  # (size, outputs)
    centre: Array  # (features,), subtracted from rows of features; or empty
    covariance: Array | None  # (size, size); None without intervals
    hidden: tuple[str, ...]  # the reason why a coefficient is hidden, or ""
    figures: dict[str, float]  # "records" and others, noisy


def invert(matrix: Array, floor: float, edge: float, report: Array) -> tuple[Array, Array]:
    """(inverse with eigenvalues raised to ``floor``, which coefficients noise hides).

    A coefficient is hidden if directions with eigenvalues below ``edge`` make up 5% of it.
    """
    values, vectors = np.linalg.eigh(matrix)
    inverse = (vectors / np.maximum(values, floor)) @ vectors.T
    lost = ((report @ vectors[:, values < edge]) ** 2).sum(axis=1)
    return inverse, lost >= 0.05 * (report**2).sum(axis=1)
