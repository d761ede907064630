"""MNIST and Fashion-MNIST: the idx format, gzipped or not."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from jopeq.errors import DataError
from jopeq.federated.bundled import Split, scaled
from jopeq.federated.download import PUBLISHED, RemoteFile, unzipped
from jopeq.federated.files import checked, download_again, find_folder, read_bytes

Pixels = NDArray[np.uint8]


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
