"""Published files: fetched by https, checked, and put in place at once."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from jopeq.errors import DataError
from jopeq.files import alone, own_folder

Progress = Callable[[int, int | None], None]  # bytes of the file done, and in total if known

_SCHEME = "https"
_CHUNK = 1 << 18
_MOST_BYTES = 1 << 28  # of any file here
_LARGEST = 1 << 26  # bytes of a file unzipped: MNIST's training images have 47 million


@dataclass(frozen=True)
class RemoteFile:
    """One published file.

    ``sha256`` is of the unzipped content, which does not change where a file is zipped again; of an
    archive it is the file's own.
    """

    name: str
    url: str
    sha256: str

    @property
    def is_zipped(self) -> bool:
        """Tell if the content is one zipped file."""
        return self.name.endswith(".gz") and not self.name.endswith(".tar.gz")


def _idx_files(base: str, *digests: str) -> tuple[RemoteFile, ...]:
    kinds = ("images-idx3", "labels-idx1")
    names = [f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in kinds]
    pairs = zip(names, digests, strict=True)
    return tuple(RemoteFile(name, base + name, sha256) for name, sha256 in pairs)


PUBLISHED: Mapping[str, tuple[RemoteFile, ...]] = {
    "mnist": _idx_files(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    "fashion-mnist": _idx_files(
        "https://fashion-mnist.s3.eu-central-1.amazonaws.com/",
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    "cifar10": (
        RemoteFile(
            "cifar-10-python.tar.gz",
            "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
            "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        ),
    ),
}
CIFAR10_BATCHES: Mapping[str, str] = {  # the SHA-256 of each file in the archive that is read
    "data_batch_1": "54636561a3ce25bd3e19253c6b0d8538147b0ae398331ac4a2d86c6d987368cd",
    "data_batch_2": "766b2cef9fbc745cf056b3152224f7cf77163b330ea9a15f9392beb8b89bc5a8",
    "data_batch_3": "0f00d98ebfb30b3ec0ad19f9756dc2630b89003e10525f5e148445e82aa6a1f9",
    "data_batch_4": "3f7bb240661948b8f4d53e36ec720d8306f5668bd0071dcb4e6c947f78e9682b",
    "data_batch_5": "d91802434d8376bbaeeadf58a737e3a1b12ac839077e931237e0dcd43adcb154",
    "test_batch": "f53d8d457504f7cff4ea9e021afcf0e0ad8e24a91f3fc42091b8adef61157831",
}


def mistaken(content: bytes, sha256: str) -> str | None:
    """Name the other file that the content is; None if its SHA-256 is the one given."""
    found = hashlib.sha256(content).hexdigest()
    if found == sha256:
        return None
    known = {digest: f"{name} of cifar10" for name, digest in CIFAR10_BATCHES.items()}
    for name, files in PUBLISHED.items():
        known |= {remote.sha256: f"{remote.name} of {name}" for remote in files}
    wanted = known.get(sha256, "the published file")
    if found in known:
        return f"is {known[found]}, not {wanted}"
    return (
        f"is not {wanted} but truncated, damaged or another file (the SHA-256 of its content is "
        f"{found}, not {sha256})"
    )


def unzip(path: Path) -> bytes:
    """The content of a zipped file; ``DataError`` ends a sentence that begins with its name."""
    try:
        with gzip.open(path) as file:
            return file.read(_LARGEST)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot be unzipped ({error})") from error


def fetch(
    remote: RemoteFile, folder: Path, progress: Progress | None = None, *, timeout: float = 30.0
) -> Path:
    """The file in ``folder``, downloaded by https unless it is there with the right content.

    Bytes arrive in ``NAME.part``, which is renamed once its SHA-256 is right. ``timeout`` is the
    longest silence of the server, in seconds. The folder must be one that others cannot write to: a
    link instead of the part would overwrite the file that it points to.
    """
    try:
        folder = own_folder(folder)
        target, part = folder / remote.name, folder / f"{remote.name}.part"
        with alone(folder / f"{remote.name}.lock"):
            if not (target.is_file() and _fault(remote, target) is None):
                try:
                    _transfer(remote, part, progress, timeout)
                    part.replace(target)
                finally:
                    part.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(
            f"cannot store {remote.name} in {folder}: {error}. "
            "Free or unlock that folder, or choose another by JOPEQ_CACHE"
        ) from error
    return target


def _fault(remote: RemoteFile, path: Path) -> str | None:
    """Say what is wrong with a file; None if its content is right."""
    try:
        return mistaken(unzip(path) if remote.is_zipped else path.read_bytes(), remote.sha256)
    except DataError as error:
        return str(error)


def _transfer(remote: RemoteFile, part: Path, progress: Progress | None, timeout: float) -> None:
    """Send one request and write the answer to ``part``."""
    request = Request(_secured(remote.url), headers={"User-Agent": "jopeq"})
    done = 0
    remedy = (
        f"Check the network and try again, or get {remote.name} by other means and pass its folder "
        "as data_dir"
    )
    try:
        opened = build_opener(_SecuredRedirects).open(request, timeout=timeout)
        with opened as response, part.open("wb") as file:
            length = response.headers.get("Content-Length", "")
            while (chunk := response.read(_CHUNK)) and done <= _MOST_BYTES:
                done += file.write(chunk)
                if progress is not None:
                    progress(done, int(length) if length.isdigit() else None)
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise DataError(f"could not download {remote.url} ({reason}). {remedy}") from error
    if fault := _fault(remote, part):
        raise DataError(
            f"could not download {remote.url}: the file that arrived {fault}, and was removed. "
            f"{remedy}"
        )


class _SecuredRedirects(HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        fp.close()
        return super().redirect_request(req, fp, code, msg, headers, _secured(newurl))


def _secured(url: str) -> str:
    if urlsplit(url).scheme != _SCHEME:
        raise DataError(
            f"{url} does not begin with {_SCHEME}://, so anybody on the way could change the file: "
            "get it by other means and pass its folder as data_dir"
        )
    return url


# Finding, reading and checking the files of a data set


CLASSES = 10  # of every data set here
_FOLDERS = {  # inside data_dir, looked at before data_dir itself; torchvision's come second
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


def check_content(content: bytes, sha256: str, where: str, remedy: str) -> bytes:
    """The content, if it has that SHA-256; else ``DataError`` says what it is."""
    if fault := mistaken(content, sha256):
        raise DataError(f"{where} {fault}: {remedy}")
    return content


def download_again(remote: RemoteFile) -> str:
    """The remedy for a bad file."""
    return f"download {remote.url} again, or let jopeq do it (no data_dir)"
