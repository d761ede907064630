"""MNIST and Fashion-MNIST: the idx format, gzipped or not."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from jopeq.errors import DataError
from jopeq.federated.bundled import Split, scaled
from jopeq.federated.download import PUBLISHED, RemoteFile
from jopeq.federated.files import CLASSES, checked, download_again, find_folder, read_bytes

Pixels = NDArray[np.uint8]


def read_idx_set(name: str, root: Path) -> Split:
    """The four files of one of the two data sets."""
    files = PUBLISHED[name]
    known = {file.name for file in files} | {Path(file.name).stem for file in files}
    folder = find_folder(name, root, known) or root
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
                f"{download_again(remote)}"
            )
    if images.shape[1:] != test_images.shape[1:]:
        raise DataError(f"the images in {folder} differ in size: {download_again(files[0])}")
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
        content = checked(read_bytes(path), remote.md5, str(path), download_again(remote))
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(
                f"{path} cannot be unzipped ({error}): {download_again(remote)}"
            ) from error
    else:
        path = path.with_suffix("")
        if not path.is_file():
            raise DataError(f"{folder} lacks {remote.name}: {download_again(remote)}")
        content = read_bytes(path)
    magic, start = bytes((0, 0, 8, dimensions)), 4 + 4 * dimensions
    if content[:4] != magic:
        raise DataError(
            f"{path} must begin with the bytes {magic.hex()}, "
            f"it begins with {content[:4].hex() or 'nothing'}: {download_again(remote)}"
        )
    shape = struct.unpack(f">{dimensions}I", content[4:start].ljust(start - 4, b"\0"))
    if len(content) != start + math.prod(shape):
        raise DataError(
            f"{path} has {len(content)} bytes where its header announces "
            f"{start + math.prod(shape)}: {download_again(remote)}"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
