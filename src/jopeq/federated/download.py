"""Published files, fetched: resumed where they broke off, checked, and put in place at once."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from jopeq.errors import DataError
from jopeq.whole_files import alone

Progress = Callable[[int, int | None], None]  # bytes of the file done, and in total if known

_CHUNK = 1 << 18
_TOO_BUSY = (408, 425, 429)  # with all 5xx, the refusals that may pass


@dataclass(frozen=True)
class RemoteFile:
    """One published file: its name, its address, its MD5 in hexadecimal digits."""

    name: str
    url: str
    md5: str


def _files(base: str, md5s: Mapping[str, str]) -> tuple[RemoteFile, ...]:
    return tuple(RemoteFile(name, base + name, md5) for name, md5 in md5s.items())


PUBLISHED: Mapping[str, tuple[RemoteFile, ...]] = {
    "mnist": _files(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        {
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
    ),
    "fashion-mnist": _files(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        {
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
    "cifar10": _files(
        "https://www.cs.toronto.edu/~kriz/",
        {"cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a"},
    ),
}


class _InterruptedTransferError(Exception):
    """The transfer broke off, or did not begin; trying again may help."""


def fetch(
    remote: RemoteFile,
    folder: Path,
    progress: Progress | None = None,
    *,
    attempts: int = 5,
    timeout: float = 30.0,
    pause: float = 1.0,
) -> Path:
    """The file in ``folder``, downloaded unless it is there with the right MD5.

    What arrives is kept in ``NAME.part`` and continued by the next attempt (of ``attempts``, with
    doubling pauses) or the next call; it gets its name only once its MD5 is right. ``timeout`` is
    the longest silence of the server, in seconds.
    """
    target = folder / remote.name
    part = folder / f"{remote.name}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with alone(folder / f"{remote.name}.lock"):
            if not (target.is_file() and md5_of(target) == remote.md5):
                _download(remote, part, progress, attempts, timeout, pause)
                part.replace(target)
    except OSError as error:
        raise DataError(
            f"cannot store {remote.name} in {folder}: {error}. "
            "Free or unlock that folder, or choose another by cache_dir or JOPEQ_CACHE"
        ) from error
    return target


def md5_of(path: Path) -> str:
    """The MD5 of a file. It guards against accidents and mix-ups, as published MD5s do."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _download(
    remote: RemoteFile,
    part: Path,
    progress: Progress | None,
    attempts: int,
    timeout: float,
    pause: float,
) -> None:
    """Fill ``part`` until its MD5 is right, or raise."""
    failure = ""
    for attempt in range(attempts):
        if attempt:
            time.sleep(pause * 2.0 ** (attempt - 1))
        is_fresh = _size(part) == 0
        try:
            _transfer(remote.url, part, progress, timeout)
        except _InterruptedTransferError as error:
            failure = str(error)
            continue
        found = md5_of(part)
        if found == remote.md5:
            return
        part.unlink()
        failure = f"the file had MD5 {found}, not {remote.md5}, and was removed"
        if is_fresh:  # otherwise the older piece may be at fault: begin again
            break
    raise DataError(
        f"could not download {remote.url}: {failure}. Check the network and try again, or get "
        f"{remote.name} by other means and pass its folder as data_dir"
    )


def _transfer(url: str, part: Path, progress: Progress | None, timeout: float) -> None:
    """One request for what ``part`` lacks, or for everything if the server knows no ranges."""
    done = _size(part)
    with _open(url, done, timeout) as response:
        if response is None:
            return
        if response.status != 206:
            done = 0
        elif not response.headers.get("Content-Range", "").startswith(f"bytes {done}-"):
            part.unlink()
            raise _InterruptedTransferError("the server sent another range than asked for")
        length = response.headers.get("Content-Length", "")
        total = done + int(length) if length.isdigit() else None
        with part.open("ab" if done else "wb") as file:
            while chunk := _read(response):
                file.write(chunk)
                done += len(chunk)
                if progress is not None:
                    progress(done, total)
    if total is not None and done < total:
        raise _InterruptedTransferError(f"the connection ended after {done} of {total} bytes")


@contextmanager
def _open(url: str, start: int, timeout: float) -> Iterator[HTTPResponse | None]:
    """The server's response from byte ``start`` on; None if there is nothing from there on."""
    headers = {"User-Agent": "jopeq"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        response = urlopen(Request(url, headers=headers), timeout=timeout)
    except HTTPError as error:
        error.close()
        if start and error.code == 416:
            yield None
            return
        if error.code in _TOO_BUSY or error.code >= 500:
            raise _InterruptedTransferError(f"HTTP {error.code} {error.reason}") from None
        raise DataError(
            f"{url} answers HTTP {error.code} {error.reason}: the file may have moved. "
            "Get it by other means and pass its folder as data_dir"
        ) from None
    except (OSError, HTTPException) as error:
        raise _InterruptedTransferError(f"{getattr(error, 'reason', error)}") from error
    with response:
        yield response


def _read(response: HTTPResponse) -> bytes:
    try:
        return response.read(_CHUNK)
    except (OSError, HTTPException) as error:
        raise _InterruptedTransferError(f"the connection broke: {error}") from error


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
