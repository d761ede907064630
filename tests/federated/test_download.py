"""Downloads against a server on this machine that misbehaves as told."""

import gzip
import hashlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from jopeq.errors import DataError
from jopeq.federated.download import RemoteFile, fetch

CONTENT = bytes(range(256)) * 4000  # about a megabyte: several chunks
SHA256 = hashlib.sha256(CONTENT).hexdigest()
NAME = "set.tar.gz"


class Handler(BaseHTTPRequestHandler):
    """Answers request i as ``server.script[i]`` says, then as "range" does."""

    def do_GET(self):
        server, asked = self.server, self.headers.get("Range")
        with server.lock:
            server.ranges.append(asked)
            how = server.script.pop(0) if server.script else "range"
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        body, status, cut = CONTENT, 200, None
        if isinstance(how, int):
            body, status = b"no", how
        elif how == "stall":
            server.heard.wait()
            self.close_connection = True
            return
        elif how == "corrupt":
            body = b"x" + CONTENT[1:]
        elif isinstance(how, tuple):
            cut = how[1]
        elif how.startswith("redirect "):
            body, status = b"", 302
        if how in ("range", "wrong range") and asked:
            body, status = CONTENT[start:], 206 if start < len(CONTENT) else 416
        self.send_response(status)
        if status == 302:
            self.send_header("Location", how.removeprefix("redirect "))
        if status == 206:
            first = start + (how == "wrong range")
            self.send_header("Content-Range", f"bytes {first}-{len(CONTENT) - 1}/{len(CONTENT)}")
        if how != "no length":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:cut])

    def log_message(self, *message):
        pass


@pytest.fixture
def plain(monkeypatch):
    """Plain http, as the servers here speak."""
    monkeypatch.setattr("jopeq.federated.download._SCHEME", "http")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def server(plain):
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.script, running.ranges, running.lock = [], [], threading.Lock()
        running.heard = threading.Event()
        running.url = f"http://127.0.0.1:{running.server_port}/{NAME}"
        running.remote = RemoteFile(NAME, running.url, SHA256, "archive")
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def download(server, folder, *script, **options):
    server.script[:] = script
    return fetch(server.remote, folder, **{"pause": 0.0, "timeout": 10.0} | options)


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_full(server, tmp_path):
    for how, total in (("range", len(CONTENT)), ("no length", None)):
        seen = []
        folder = tmp_path / "new" / how
        path = download(server, folder, how, progress=lambda *step, seen=seen: seen.append(step))
        assert path == folder / NAME
        assert path.read_bytes() == CONTENT
        assert names(folder) == [NAME]
        assert seen[-1] == (len(CONTENT), total)
        assert [done for done, _ in seen] == sorted({done for done, _ in seen})
        assert len(seen) > 2
    assert server.ranges == [None] * 2
    plain = tmp_path / "plain"
    plain.touch()
    assert path.stat().st_mode == plain.stat().st_mode  # the user's
    download(server, folder)
    assert len(server.ranges) == 2  # what is there is not fetched again
    path.write_bytes(b"damaged")
    assert download(server, folder).read_bytes() == CONTENT


def test_truncated_then_resumed_by_the_next_call(server, tmp_path):
    with pytest.raises(DataError, match=r"ended after 300000 of 1024000 bytes.*data_dir"):
        download(server, tmp_path, ("cut", 300_000), attempts=1)
    assert names(tmp_path) == [f"{NAME}.part"]
    assert download(server, tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=300000-"]


@pytest.mark.parametrize(
    ("script", "ranges"),
    [
        (["range"], [None, "bytes=300000-"]),
        (["full"], [None, "bytes=300000-"]),  # a server that knows no ranges
        (["wrong range", "range"], [None, "bytes=300000-", None]),
    ],
)
def test_a_broken_transfer_is_resumed_by_the_next_attempt(server, tmp_path, script, ranges):
    seen = []
    path = download(
        server, tmp_path, ("cut", 300_000), *script, progress=lambda *step: seen.append(step)
    )
    assert path.read_bytes() == CONTENT
    assert server.ranges == ranges
    assert {total for _, total in seen} == {len(CONTENT)}
    assert names(tmp_path) == [NAME]


@pytest.mark.parametrize("left", [CONTENT, CONTENT + b"more", b"other" + CONTENT[5:400_000]])
def test_part_of_an_earlier_download(server, tmp_path, left):
    """Whole, too long (both answered 416), or of another file: the SHA-256 decides."""
    (tmp_path / f"{NAME}.part").write_bytes(left)
    assert download(server, tmp_path).read_bytes() == CONTENT
    assert names(tmp_path) == [NAME]
    assert server.ranges[1:] == ([] if left == CONTENT else [None])


def test_corrupted_is_removed_and_replaces_no_file(server, tmp_path):
    (tmp_path / NAME).write_bytes(b"old")
    words = rf"/{NAME}: what arrived is not .*, not {SHA256}\), and was rem"
    with pytest.raises(DataError, match=words):
        download(server, tmp_path, "corrupt")
    assert len(server.ranges) == 1
    assert names(tmp_path) == [NAME]
    assert (tmp_path / NAME).read_bytes() == b"old"


@pytest.mark.parametrize("code", [403, 404, 410, 416])
def test_refusals_are_final(server, tmp_path, code):
    with pytest.raises(DataError, match=rf"{NAME} answers HTTP {code}.*data_dir"):
        download(server, tmp_path, code, code)
    assert len(server.ranges) == 1


@pytest.mark.parametrize("code", [429, 500, 503])
def test_busy_servers_are_asked_again(server, tmp_path, code, monkeypatch):
    slept = []
    monkeypatch.setattr("jopeq.federated.download.time.sleep", slept.append)
    assert download(server, tmp_path, code, code, code, pause=1.0).read_bytes() == CONTENT
    assert slept == [1.0, 2.0, 4.0]
    with pytest.raises(DataError, match=f"HTTP {code}"):
        download(server, tmp_path / "again", *[code] * 9, attempts=3)
    assert len(server.ranges) == 4 + 3


def test_a_server_that_does_not_stop_is_left(server, tmp_path, monkeypatch):
    monkeypatch.setattr("jopeq.federated.download._MOST_BYTES", len(CONTENT) // 2)
    with pytest.raises(DataError, match=f"sent more than {len(CONTENT) // 2} bytes"):
        download(server, tmp_path)
    assert names(tmp_path) == []


def test_silent_server(server, tmp_path):
    with pytest.raises(DataError, match="could not download"):
        download(server, tmp_path, "stall", attempts=1, timeout=0.2)
    server.heard.set()


def test_folder_that_cannot_be_written(server, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataError, match=r"cannot store.*JOPEQ_CACHE"):
        download(server, tmp_path / "file")
    assert server.ranges == []


def test_several_at_once_download_once(server, tmp_path):
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: download(server, tmp_path), range(4)))
    assert {path.read_bytes() for path in paths} == {CONTENT}
    assert len(server.ranges) == 1


def test_plain_http_is_refused(server, tmp_path, monkeypatch):
    monkeypatch.setattr("jopeq.federated.download._SCHEME", "https")
    with pytest.raises(DataError, match=r"does not begin with https://.*data_dir"):
        download(server, tmp_path)
    assert server.ranges == []


def test_redirects_do_not_leave_https(server, tmp_path):
    """Here: a redirect away from the one scheme that is allowed."""
    with pytest.raises(DataError, match=r"ftp://127.0.0.1/set does not begin with http://"):
        download(server, tmp_path, "redirect ftp://127.0.0.1/set")
    assert len(server.ranges) == 1
    path = download(server, tmp_path, f"redirect {server.url}")
    assert path.read_bytes() == CONTENT


def test_a_zipped_file_is_known_by_its_content(server, tmp_path, monkeypatch):
    """However it is zipped; what cannot be unzipped is removed."""
    monkeypatch.setitem(globals(), "CONTENT", gzip.compress(b"content"))
    server.remote = RemoteFile(
        "set.gz", server.url, hashlib.sha256(b"content").hexdigest(), "images"
    )
    (tmp_path / "set.gz").write_bytes(gzip.compress(b"content", compresslevel=0))
    download(server, tmp_path)
    assert server.ranges == []
    (tmp_path / "set.gz").unlink()
    assert download(server, tmp_path).read_bytes() == CONTENT
    (tmp_path / "set.gz").unlink()
    with pytest.raises(DataError, match=r"what arrived cannot be unzipped .*, and was removed"):
        download(server, tmp_path, "corrupt")


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_folders_others_can_write_to_are_refused(server, tmp_path):
    """Somebody could put a link there in place of the part, and have its target overwritten."""
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(DataError, match=r"others can write to .*open, and may.*JOPEQ_CACHE"):
        download(server, folder)
    assert server.ranges == []
