"""Downloads against a server on this machine that misbehaves as told."""

import hashlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from jopeq.errors import DataError
from jopeq_lab.training.download import RemoteFile, fetch

CONTENT = bytes(range(256)) * 4000  # about a megabyte: several chunks
SHA256 = hashlib.sha256(CONTENT).hexdigest()
NAME = "set.tar.gz"


class Handler(BaseHTTPRequestHandler):
    """Answers request i as ``server.script[i]`` says, then in full."""

    def do_GET(self):
        server = self.server
        with server.lock:
            server.requests += 1
            how = server.script.pop(0) if server.script else "full"
        body, status, cut = CONTENT, 200, None
        if isinstance(how, int):
            body, status = b"no", how
        elif isinstance(how, tuple):
            cut = how[1]
        elif how == "stall":
            server.heard.wait()
            self.close_connection = True
            return
        elif how == "corrupt":
            body = b"x" + CONTENT[1:]
        elif how.startswith("redirect "):
            body, status = b"", 302
        self.send_response(status)
        if status == 302:
            self.send_header("Location", how.removeprefix("redirect "))
        if how != "no length":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:cut])

    def log_message(self, *message):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr("jopeq_lab.training.download._SCHEME", "http")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.script, running.requests, running.lock = [], 0, threading.Lock()
        running.heard = threading.Event()
        running.url = f"http://127.0.0.1:{running.server_port}/{NAME}"
        running.remote = RemoteFile(NAME, running.url, SHA256)
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def download(server, folder, *script, **options):
    server.script[:] = script
    return fetch(server.remote, folder, **{"timeout": 10.0} | options)


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_full(server, tmp_path):
    for how, total in (("full", len(CONTENT)), ("no length", None)):
        seen = []
        folder = tmp_path / "new" / how
        path = download(server, folder, how, progress=lambda *step, seen=seen: seen.append(step))
        assert path == folder / NAME
        assert path.read_bytes() == CONTENT
        assert names(folder) == [NAME]
        assert seen[-1] == (len(CONTENT), total)
        assert [done for done, _ in seen] == sorted({done for done, _ in seen})
        assert len(seen) > 2
    assert server.requests == 2
    plain = tmp_path / "plain"
    plain.touch()
    assert path.stat().st_mode == plain.stat().st_mode  # the user's
    download(server, folder)
    assert server.requests == 2  # what is there is not fetched again
    path.write_bytes(b"damaged")
    assert download(server, folder).read_bytes() == CONTENT


def test_what_is_not_the_published_file_is_removed_and_replaces_none(server, tmp_path, monkeypatch):
    (tmp_path / NAME).write_bytes(b"old")
    (tmp_path / f"{NAME}.part").write_bytes(b"of a process that was killed")
    for how in ("corrupt", ("cut", 300_000), 404, 503):
        with pytest.raises(DataError, match=NAME):
            download(server, tmp_path, how)
        assert {name: (tmp_path / name).read_bytes() for name in names(tmp_path)} == {NAME: b"old"}
    assert server.requests == 4
    with pytest.raises(DataError):
        download(server, tmp_path, "stall", timeout=0.2)
    server.heard.set()
    monkeypatch.setattr("jopeq_lab.training.download._MOST_BYTES", len(CONTENT) // 2)
    with pytest.raises(DataError):
        download(server, tmp_path)
    assert names(tmp_path) == [NAME]


def test_nothing_is_asked_for_a_folder_that_cannot_be_used_or_without_https(
    server, tmp_path, monkeypatch
):
    """Somebody could put a link into an open folder, and have its target overwritten."""
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    for name, scheme in (("file", "http"), ("open", "http"), ("own", "https")):
        if name == "open" and os.name != "posix":  # whose permissions these are
            continue
        monkeypatch.setattr("jopeq_lab.training.download._SCHEME", scheme)
        with pytest.raises(DataError, match="data_dir" if name == "own" else "JOPEQ_CACHE"):
            download(server, tmp_path / name)
    assert server.requests == 0


def test_several_at_once_download_once(server, tmp_path):
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: download(server, tmp_path), range(4)))
    assert {path.read_bytes() for path in paths} == {CONTENT}
    assert server.requests == 1


def test_an_unreachable_server_is_told_as_such(server, tmp_path):
    server.shutdown()
    server.server_close()
    with pytest.raises(DataError, match=r"could not download .* refused.* data_dir") as refused:
        fetch(server.remote, tmp_path / "data")
    assert "arrived" not in str(refused.value)
