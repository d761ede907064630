"""The quantizer of the authors' code, and the rows that are kept of it."""

import math

import numpy as np
import pytest

from paper import cifar
from paper.cifar import CLIENTS, COLUMNS, PAPER


def test_the_kept_rows_are_the_papers_and_what_is_computed(results):
    columns = range(len(COLUMNS))
    names = ("sdq", "t", "t+sdq", "jopeq")
    assert list(results.snr.paper) == [PAPER[name]["snr_db"][c] for c in columns for name in names]
    kept = results.snr.query("rate == 1").set_index("scheme").code
    for name in ("sdq", "jopeq"):
        found = cifar.mean_snr(cifar.SkewedBox(name, 1.0, 3.0), cifar.tensor_sizes(), CLIENTS)
        assert found == pytest.approx(kept[name], abs=1e-6)


def test_without_overload_the_error_is_that_of_the_parallelogram():
    """E‖e‖²/2 = (4/3)·Δ²/12, the basis vectors having squared length 4/3."""
    box = cifar.SkewedBox("sdq", 6.0, 3.0)
    update = np.random.default_rng(0).standard_normal(200_000)
    unit = 3.0 * math.sqrt(2.0) * update.std()
    error = (update - box(update, 0)) / unit
    assert np.abs(update / unit).max() < box.gamma - box.step
    assert np.mean(error**2) == pytest.approx(4 / 3 * box.step**2 / 12, rel=0.02)
