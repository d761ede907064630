"""Features of records by a frozen network that sees one record at a time.

Models round rows to integers, and rounding turns a last digit into a whole unit. So features must
be a function of their own record to the last digit, which batches of several do not promise.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from contextlib import suppress

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from jopeq.torch.clipped_sum import ALIKE
from jopeq.torch.records import Records, other_numbers, read_example

Features = NDArray[np.float32]


class FrozenBody:
    """A copy of ``body`` in evaluation mode, tried on the public ``example`` (inputs, target).

    >>> FrozenBody(nn.Linear(4, 3), (torch.zeros(4), torch.tensor(0))).size
    3
    """

    def __init__(self, body: nn.Module, example: object) -> None:
        self._body = copy.deepcopy(body).eval()
        self._blank = read_example(example)[:-1]
        other = [other_numbers(part) for part in self._blank]
        try:
            first, _, again = (self._row(one) for one in (self._blank, other, self._blank))
        except Exception as error:
            shapes = ", ".join(f"{tuple(part.shape)} {part.dtype}" for part in self._blank)
            told = f"body gives no features of a record of {shapes}: {error}"
            raise ValueError(f"{told}; declare others by example=(inputs, target)") from error
        if not np.allclose(first, again, ALIKE, ALIKE * float(np.abs(first).max(initial=0.0))):
            raise ValueError(
                "body: features of the example change when they are computed again, so it draws "
                "at random or remembers records: remove such layers and hooks"
            )
        self.size = len(first)

    def features(self, records: Records, padded: int) -> Features:
        """(records, size); NaN where a record is bad. So many as ``padded`` are computed at least.

        That keeps the number of records out of the time.
        """
        found = np.full((len(records.is_good), self.size), np.nan, dtype=np.float32)
        for at in range(max(len(found), padded)):
            with suppress(Exception):  # of this record alone
                if at < len(found) and records.is_good[at]:
                    found[at] = self._row(part[at] for part in records.parts[:-1])
                else:
                    self._row(self._blank)
        return found

    def _row(self, record: Iterable[Tensor]) -> Features:
        device = next((one.device for one in self._body.parameters()), None)
        with torch.inference_mode():
            (row,) = self._body(*(part[None].to(device) for part in record))
        found: Features = row.flatten().float().cpu().numpy()
        return found
