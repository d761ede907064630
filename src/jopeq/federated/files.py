"""Finding, reading and checking the files of a data set."""

from __future__ import annotations

from pathlib import Path

from jopeq.errors import DataError
from jopeq.federated.download import RemoteFile, mistaken

CLASSES = 10  # of every data set here

# where data_dir may hold a data set's files, besides itself; torchvision's folders come second
_FOLDERS = {
    "mnist": ("mnist", "MNIST/raw"),
    "fashion-mnist": ("fashion-mnist", "FashionMNIST/raw"),
    "cifar10": ("cifar-10-batches-py",),
}


def find_folder(name: str, root: Path, files: set[str]) -> Path | None:
    """The first folder that holds any of the files."""
    folders = [*(root / folder for folder in _FOLDERS[name]), root]
    return next((f for f in folders if any((f / file).is_file() for file in files)), None)


def read_bytes(path: Path) -> bytes:
    """The content of a file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error}): check its permissions") from error


def checked(content: bytes, sha256: str, where: str, remedy: str) -> bytes:
    """The content, if it has that SHA-256; else ``DataError`` says what it is."""
    if fault := mistaken(content, sha256):
        raise DataError(f"{where} {fault}: {remedy}")
    return content


def download_again(remote: RemoteFile) -> str:
    """The remedy for a bad file."""
    return f"download {remote.url} again, or let jopeq do it (no data_dir, download=True)"
