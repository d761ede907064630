"""The data sets of the experiments as tensors, from files that are checked and never trusted."""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import os
import pickle
import struct
import tarfile
import zlib
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from jopeq.errors import DataError
from jopeq.federated.bundled import BUNDLED, Split, scaled
from jopeq.federated.download import PUBLISHED, Progress, RemoteFile, fetch
from jopeq.federated.partition import permutation

Pixels = NDArray[np.uint8]
PathLike = str | os.PathLike[str]

NAMES = (*BUNDLED, *PUBLISHED)
CLASSES = 10  # of every data set here

# where data_dir may hold a data set's files, besides itself; torchvision's folders come second
_FOLDERS = {
    "mnist": ("mnist", "MNIST/raw"),
    "fashion-mnist": ("fashion-mnist", "FashionMNIST/raw"),
    "cifar10": ("cifar-10-batches-py",),
}
_CIFAR_FOLDER = "cifar-10-batches-py"
_CIFAR_BATCHES = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
_CIFAR_SHAPE = (3, 32, 32)
_CIFAR_LIMIT = 1 << 25  # bytes of a batch: the published ones have 31 million


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


def load(
    name: str,
    data_dir: PathLike | None = None,
    cache_dir: PathLike | None = None,
    download: bool = True,
    progress: Progress | None = None,
) -> Dataset:
    """One of the data sets ``NAMES``.

    "digits" and "mnist5k" come with Python packages. The others are read from ``data_dir`` and
    nowhere else if it is given: MNIST and Fashion-MNIST as their four idx files, gzipped or not;
    CIFAR-10 as its Python batches or their tar.gz. Otherwise they are read from ``cache_dir``
    (default: $JOPEQ_CACHE, $XDG_CACHE_HOME/jopeq or ~/.cache/jopeq), downloaded there first unless
    ``download`` is False; ``progress`` is called with (bytes done, bytes in total or None) of each
    file. Files must have their published MD5; idx files that were unzipped have none, so only
    their structure is checked. ``DataError`` names the file at fault and the remedy.

    >>> digits = load("digits")
    >>> tuple(digits.train_inputs.shape), tuple(digits.test_inputs.shape)
    ((1442, 1, 8, 8), (355, 1, 8, 8))
    """
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
    return _dataset(name, _read_cifar10(root) if name == "cifar10" else _read_idx_set(name, root))


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
            f"count must be an integer from 0 to {len(labels) - 1}, so that something is left to "
            f"train on, got {count!r}"
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


# MNIST and Fashion-MNIST: idx files


def _read_idx_set(name: str, root: Path) -> Split:
    files = PUBLISHED[name]
    known = {file.name for file in files} | {Path(file.name).stem for file in files}
    folder = _folder(name, root, known) or root
    images, labels, test_images, test_labels = (
        _read_idx(folder, remote, dimensions)
        for remote, dimensions in zip(files, (3, 1, 3, 1), strict=True)
    )
    for pixels, classes, remote in (
        (images, labels, files[1]),
        (test_images, test_labels, files[3]),
    ):
        if len(pixels) != len(classes) or classes.max(initial=0) >= CLASSES:
            raise DataError(
                f"{Path(remote.name).stem} in {folder} holds {len(classes)} labels up to "
                f"{classes.max(initial=0)} for {len(pixels)} images of {CLASSES} classes: "
                f"{_again(remote)}"
            )
    if images.shape[1:] != test_images.shape[1:]:
        raise DataError(f"the images in {folder} differ in size: {_again(files[0])}")
    return (
        scaled(images[:, None]),
        labels.astype(np.int64),
        scaled(test_images[:, None]),
        test_labels.astype(np.int64),
    )


def _read_idx(folder: Path, remote: RemoteFile, dimensions: int) -> Pixels:
    """The array of an idx file: 00 00 08 dimensions, sizes as big-endian words, bytes."""
    path = folder / remote.name
    if path.is_file():
        content = _checked(_bytes(path), remote.md5, str(path), _again(remote))
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{path} cannot be unzipped ({error}): {_again(remote)}") from error
    else:
        path = path.with_suffix("")
        if not path.is_file():
            raise DataError(f"{folder} lacks {remote.name}: {_again(remote)}")
        content = _bytes(path)
    magic, start = bytes((0, 0, 8, dimensions)), 4 + 4 * dimensions
    if content[:4] != magic:
        raise DataError(
            f"{path} must begin with the bytes {magic.hex()}, "
            f"it begins with {content[:4].hex() or 'nothing'}: {_again(remote)}"
        )
    shape = struct.unpack(f">{dimensions}I", content[4:start].ljust(start - 4, b"\0"))
    if len(content) != start + math.prod(shape):
        raise DataError(
            f"{path} has {len(content)} bytes where its header announces "
            f"{start + math.prod(shape)}: {_again(remote)}"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


# CIFAR-10: pickles of Python 2


def _read_cifar10(root: Path) -> Split:
    (archive,) = PUBLISHED["cifar10"]
    folder = _folder("cifar10", root, set(_CIFAR_BATCHES))
    if folder is not None:
        contents = _batches_in_folder(folder, archive)
    elif (root / archive.name).is_file():
        contents = _batches_in_archive(root / archive.name, archive)
    else:
        raise DataError(
            f"{root} holds neither {_CIFAR_FOLDER} nor {archive.name}: {_again(archive)}"
        )
    pixels, labels = [], []
    for name, md5 in _CIFAR_BATCHES.items():
        where = f"{folder or root / archive.name}: {name}"
        batch = unpickle_batch(_checked(contents.pop(name), md5, where, _again(archive)), where)
        pixels.append(batch[0])
        labels.append(batch[1])
    return (
        scaled(np.concatenate(pixels[:-1])),
        np.concatenate(labels[:-1]),
        scaled(pixels[-1]),
        labels[-1],
    )


def _batches_in_folder(folder: Path, archive: RemoteFile) -> dict[str, bytes]:
    for name in _CIFAR_BATCHES:
        if not (folder / name).is_file():
            raise DataError(f"{folder} lacks {name}: {_again(archive)} and unpack it there")
    return {name: _bytes(folder / name) for name in _CIFAR_BATCHES}


def _batches_in_archive(path: Path, archive: RemoteFile) -> dict[str, bytes]:
    """The batches of the tar.gz, read without unpacking anything to disk."""
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r|gz") as tar:
            for member in tar:
                folder, _, name = member.name.rpartition("/")
                is_batch = folder == _CIFAR_FOLDER and name in _CIFAR_BATCHES
                if is_batch and member.isreg() and member.size <= _CIFAR_LIMIT:
                    stream = tar.extractfile(member)
                    contents[name] = stream.read() if stream is not None else b""
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({error}): {_again(archive)}") from error
    for name in _CIFAR_BATCHES:
        if name not in contents:
            raise DataError(f"{path} lacks {name}: {_again(archive)}")
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
    """What stands in for numpy.dtype."""

    def __init__(self, code: str, *flags: int) -> None:
        self.code = code

    def __setstate__(self, state: object) -> None:
        pass


class _PickledArray:
    """What stands in for numpy.ndarray: bytes and a shape."""

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


# What both formats share


def _folder(name: str, root: Path, files: set[str]) -> Path | None:
    """The first folder that holds any of the files."""
    folders = [*(root / folder for folder in _FOLDERS[name]), root]
    return next((f for f in folders if any((f / file).is_file() for file in files)), None)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error}): check its permissions") from error


def _checked(content: bytes, md5: str, where: str, remedy: str) -> bytes:
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != md5:
        raise DataError(
            f"{where} has MD5 {found} where the published file has {md5}, so it is truncated, "
            f"corrupted or another file: {remedy}"
        )
    return content


def _again(remote: RemoteFile) -> str:
    return f"download {remote.url} again, or let jopeq do it (no data_dir, download=True)"
