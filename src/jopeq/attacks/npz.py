"""Arrays kept in an .npz file: written whole or not at all, read with a clear error."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.errors import DataError
from jopeq.whole_files import atomic

_UNREADABLE = (OSError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile, zlib.error)


def write_npz(path: Path, **arrays: Any) -> None:
    """Replace the file; whoever reads it sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic(path) as file:
        np.savez_compressed(file, **arrays)


def read_npz(path: Path, *names: str) -> list[NDArray[Any]]:
    """The arrays of these names; nothing in the file is run."""
    try:
        # opened here: NumPy forgets to close what it opened and could not read
        with path.open("rb") as file, np.load(file, allow_pickle=False) as held:
            return [held[name] for name in names]
    except _UNREADABLE as error:
        raise DataError(f"{path} cannot be read ({error}): delete it to start anew") from error
