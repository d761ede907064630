"""The data sets of the experiments as tensors, from files that are checked and never trusted."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path

import numpy as np
import torch

from jopeq.errors import DataError
from jopeq.federated.bundled import BUNDLED, Split
from jopeq.federated.cifar import read_cifar10
from jopeq.federated.download import PUBLISHED, Progress, fetch
from jopeq.federated.files import CLASSES
from jopeq.federated.idx import read_idx_set
from jopeq.federated.partition import permutation

PathLike = str | os.PathLike[str]

NAMES = (*BUNDLED, *PUBLISHED)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images and labels, to train on and to test on.

    Inputs are float32 of shape (N, C, H, W), black 0 and white 1: pixels divided by the largest
    value they can have (255; 16 for "digits") and not centred. Labels are int64 of shape (N,).
    """

    name: str
    train_inputs: torch.Tensor
    train_labels: torch.Tensor
    test_inputs: torch.Tensor
    test_labels: torch.Tensor
    classes: int

    def __post_init__(self) -> None:
        for part, inputs, labels in (
            ("train", self.train_inputs, self.train_labels),
            ("test", self.test_inputs, self.test_labels),
        ):
            if inputs.ndim != 4 or inputs.shape[1:] != self.train_inputs.shape[1:]:
                raise ValueError(f"{part}_inputs must be (N, C, H, W), got {tuple(inputs.shape)}")
            if inputs.dtype != torch.float32 or labels.dtype != torch.int64:
                raise ValueError(
                    f"{part}_inputs must be float32 and {part}_labels int64, "
                    f"got {inputs.dtype} and {labels.dtype}"
                )
            if labels.shape != inputs.shape[:1]:
                raise ValueError(
                    f"{part}_labels must have shape ({len(inputs)},), got {tuple(labels.shape)}"
                )
            if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < self.classes:
                raise ValueError(
                    f"{part}_labels must be from 0 to classes - 1 = {self.classes - 1}"
                )

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of one image."""
        channels, height, width = self.train_inputs.shape[1:]
        return channels, height, width

    def centered(self) -> Dataset:
        """The same images with black −1 and white 1.

        >>> digits = load("digits").centered()
        >>> float(digits.train_inputs.min()), float(digits.test_inputs.max())
        (-1.0, 1.0)
        """
        return replace(
            self,
            train_inputs=self.train_inputs * 2.0 - 1.0,
            test_inputs=self.test_inputs * 2.0 - 1.0,
        )


def load(
    name: str,
    data_dir: PathLike | None = None,
    cache_dir: PathLike | None = None,
    download: bool = True,
    progress: Progress | None = None,
) -> Dataset:
    """One of the data sets ``NAMES``.

    "digits" and "mnist5k" come with Python packages and take no ``data_dir``. The others are read
    from ``data_dir`` and nowhere else if it is given: MNIST and Fashion-MNIST as their four idx
    files, gzipped or not; CIFAR-10 as its Python batches or their tar.gz. Otherwise they are read
    from ``cache_dir`` (default: $JOPEQ_CACHE, $XDG_CACHE_HOME/jopeq or ~/.cache/jopeq), downloaded
    there first unless ``download`` is False; ``progress`` is called with (bytes done, bytes in
    total or None) of each file. Downloads go by https, into folders that nobody else can write to.
    The unzipped content of every file must have the published one's SHA-256, so that another data
    set cannot pass for this one. ``DataError`` names the file at fault, what it holds if that is
    known, and the remedy.

    >>> digits = load("digits")
    >>> tuple(digits.train_inputs.shape), tuple(digits.test_inputs.shape)
    ((1442, 1, 8, 8), (355, 1, 8, 8))
    """
    if name in BUNDLED and data_dir is not None:
        raise ValueError(
            f"data set {name!r} comes with a Python package, and data_dir {os.fspath(data_dir)!r} "
            f"would not be read: leave it out, or name one of {', '.join(PUBLISHED)}"
        )
    if name in BUNDLED:
        return _dataset(name, BUNDLED[name]())
    if name not in PUBLISHED:
        raise ValueError(f"the data set must be one of {', '.join(NAMES)}, got {name!r}")
    if data_dir is not None:
        root = Path(data_dir).expanduser()
        if not root.is_dir():
            raise DataError(f"data_dir {root} is not a folder: leave it out to download {name}")
    else:
        root = _cache(cache_dir) / name
        if download:
            for remote in PUBLISHED[name]:
                fetch(remote, root, progress)
    return _dataset(name, read_cifar10(root) if name == "cifar10" else read_idx_set(name, root))


def split_validation(
    dataset: Dataset, count: int | None = None, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Training inputs and labels without ``count`` random samples, then those samples.

    The paper holds out 10,000 images of MNIST; the default is that, and at most a sixth.

    >>> [len(part) for part in split_validation(load("digits"), count=200, seed=1)]
    [1242, 1242, 200, 200]
    """
    inputs, labels = dataset.train_inputs, dataset.train_labels
    if count is None:
        count = min(10_000, len(labels) // 6)
    is_whole = isinstance(count, Integral) and not isinstance(count, bool)
    if not is_whole or not 0 <= count < len(labels):
        raise ValueError(
            f"the validation count must be an integer from 0 to {len(labels) - 1}, so that "
            f"something is left to train on, got {count!r}"
        )
    order = permutation(len(labels), seed, "validation split")
    held, kept = (torch.from_numpy(np.sort(part)) for part in (order[:count], order[count:]))
    return inputs[kept], labels[kept], inputs[held], labels[held]


def _dataset(name: str, arrays: Split) -> Dataset:
    train_inputs, train_labels, test_inputs, test_labels = map(torch.from_numpy, arrays)
    return Dataset(name, train_inputs, train_labels, test_inputs, test_labels, CLASSES)


def _cache(cache_dir: PathLike | None) -> Path:
    if cache_dir is not None:
        return Path(cache_dir).expanduser()
    if own := os.environ.get("JOPEQ_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "jopeq"
