"""The example update: always the same, of the paper's size, and shaped like a real one."""

from __future__ import annotations

import numpy as np
import pytest

from jopeq.experiments.example_update import CLASSES, PIXELS, example_update


@pytest.fixture(scope="module")
def update():
    return example_update()


def test_it_has_the_papers_size(update):
    assert update.shape == (7850,) == (CLASSES * (PIXELS + 1),)
    assert update.dtype == np.float32
    assert np.isfinite(update).all()


def test_it_is_always_the_same(update):
    assert np.array_equal(update, example_update())
    assert np.array_equal(update, example_update(bytes(32)))


def test_another_key_is_another_client(update):
    other = example_update(bytes(range(32)))
    assert not np.array_equal(update, other)
    assert np.abs(np.corrcoef(update, other)[0, 1]) < 0.5


def test_it_is_the_work_of_training(update):
    """Neither noise nor nothing: it is bright where the images are, and heavier than Gaussian."""
    assert 0.1 < np.linalg.norm(update) < 100
    weights = update.reshape(CLASSES, PIXELS + 1)[:, :-1].reshape(CLASSES, 28, 28)
    centre, border = weights[:, 10:18, 10:18], weights[:, :, [0, -1]]
    assert np.all(border == 0)  # dark pixels teach nothing
    assert centre.std() > 3 * weights[:, 2:4, :].std()
    centred = update - update.mean()
    assert np.mean(centred**4) / np.mean(centred**2) ** 2 > 3.5


def test_softmax_gradients_sum_to_zero_over_the_classes(update):
    columns = update.reshape(CLASSES, PIXELS + 1).astype(np.float64)
    assert np.abs(columns.sum(axis=0)).max() < 1e-5 * np.abs(columns).max()


def test_it_separates_the_classes(update):
    """The rows belong to different classes: no two of them point the same way."""
    rows = update.reshape(CLASSES, PIXELS + 1).astype(np.float64)
    cosines = np.corrcoef(rows) - np.eye(CLASSES)
    assert cosines.max() < 0.5
