import math
from pathlib import Path

import numpy as np
import pytest

from jopeq.experiments.cifar import CLIENTS, COLUMNS, PAPER
from jopeq.experiments.snr_conventions import (
    SkewedBox,
    conventions,
    mean_snr,
    read_conventions,
    tensor_sizes,
)

KEPT = Path(__file__).parents[2] / "results" / "table2_snr.jsonl"


def test_the_sizes_are_those_of_the_model():
    assert sum(tensor_sizes()) == 169_578
    assert len(tensor_sizes()) == 14


@pytest.mark.skipif(not KEPT.exists(), reason="no kept rows")
def test_the_codes_quantizer_gives_the_papers_snr():
    """Within 0.5 dB, two to three standard errors of the mean over 30 clients; ours are further."""
    rows = read_conventions(KEPT)
    assert [row.paper for row in rows] == [
        PAPER[name][column][1]
        for column in range(len(COLUMNS))
        for name in ("sdq", "t", "t+sdq", "jopeq")
    ]
    for row in rows:
        assert abs(row.code - row.paper) < 0.5, row
        assert abs(row.whole - row.paper) > abs(row.code - row.paper), row


@pytest.mark.skipif(not KEPT.exists(), reason="no kept rows")
@pytest.mark.parametrize("name", ["sdq", "t+sdq", "jopeq"])
def test_the_kept_rows_are_what_is_computed(name):
    (row,) = (row for row in read_conventions(KEPT) if (row.scheme, row.rate) == (name, 1.0))
    found = mean_snr(SkewedBox(name, 1.0, 3.0), tensor_sizes(), CLIENTS)
    assert found == pytest.approx(row.code, abs=1e-6)


def test_without_overload_the_error_is_that_of_the_parallelogram():
    """E‖e‖²/2 = (4/3)·Δ²/12, the basis vectors having squared length 4/3."""
    box = SkewedBox("sdq", 6.0, 3.0)
    update = np.random.default_rng(0).standard_normal(200_000)
    unit = 3.0 * math.sqrt(2.0) * update.std()
    error = (update - box(update, 0)) / unit
    assert np.abs(update / unit).max() < box.gamma - box.step
    assert np.mean(error**2) == pytest.approx(4 / 3 * box.step**2 / 12, rel=0.02)


def test_there_are_as_many_points_as_the_code_has():
    for rate, points in ((1.0, 9), (2.0, 25)):
        box = SkewedBox("sdq", rate, 3.0)
        assert (2 * box.last + 1) ** 2 == points
        assert box.step * (2 * box.last + 1) == pytest.approx(2 * box.gamma)


def test_noise_of_the_joint_design_is_matched_to_the_dither():
    box, separate = (SkewedBox(name, 1.0, 3.0) for name in ("jopeq", "t+sdq"))
    basis = np.array([[1.0, 0.0], [1 / math.sqrt(3), 2 / math.sqrt(3)]])
    total = box.noise.covariance + basis @ basis.T * box.step**2 / 12
    assert total == pytest.approx(separate.noise.covariance)
    assert SkewedBox("sdq", 1.0, 3.0).noise is None


def test_odd_tensors_keep_their_length():
    assert SkewedBox("jopeq", 1.0, 3.0)(np.arange(7.0), 0).shape == (7,)


def test_rows_are_kept_and_not_computed_twice(tmp_path, monkeypatch):
    path = tmp_path / "snr.jsonl"
    assert read_conventions(path) == []
    monkeypatch.setattr("jopeq.experiments.snr_conventions.tensor_sizes", lambda: [64, 9])
    rows = conventions(path, clients=2)
    assert len(rows) == 4 * len(COLUMNS)
    assert all(math.isfinite(row.code) and math.isfinite(row.bits) for row in rows)
    monkeypatch.setattr("jopeq.experiments.snr_conventions._rows", pytest.fail)
    assert conventions(path) == rows
