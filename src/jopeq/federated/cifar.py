"""CIFAR-10: pickles of Python 2, unpickled without trusting them."""

from __future__ import annotations

import io
import math
import pickle
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.errors import DataError
from jopeq.federated.bundled import Split, scaled
from jopeq.federated.download import CIFAR10_BATCHES, PUBLISHED, RemoteFile
from jopeq.federated.files import CLASSES, checked, download_again, find_folder, read_bytes

Pixels = NDArray[np.uint8]

_CIFAR_FOLDER = "cifar-10-batches-py"
_CIFAR_SHAPE = (3, 32, 32)
_CIFAR_LIMIT = 1 << 25  # bytes of a batch: the published ones have 31 million


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
