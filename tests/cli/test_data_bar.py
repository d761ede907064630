import gzip
import hashlib
import http.server
import threading
from dataclasses import replace

import pytest

from jopeq.cli.output import load_with_bar
from jopeq.errors import DataError
from jopeq.federated import download


def test_bundled_sets_need_no_bar(capsys):
    pytest.importorskip("sklearn")
    assert len(load_with_bar("digits", None).train_labels) == 1442
    assert "downloading" not in capsys.readouterr().err


def test_downloads_are_shown_and_then_checked(tmp_path, monkeypatch, capsys):
    """Four files from a local server: the first arrives, the second is refused as another."""
    folder = tmp_path / "served"
    folder.mkdir()
    names = [remote.name for remote in download.PUBLISHED["mnist"]]
    for name in names:
        (folder / name).write_bytes(gzip.compress(name.encode() * 100))
    handler = lambda *a: http.server.SimpleHTTPRequestHandler(*a, directory=folder)  # noqa: E731
    monkeypatch.setattr(http.server.SimpleHTTPRequestHandler, "log_message", lambda *a: None)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        right = hashlib.sha256(names[0].encode() * 100).hexdigest()
        remotes = tuple(
            replace(
                remote, url=f"http://127.0.0.1:{server.server_port}/{remote.name}", sha256=right
            )
            for remote in download.PUBLISHED["mnist"]
        )
        monkeypatch.setattr(download, "_SCHEME", "http")
        monkeypatch.setitem(download.PUBLISHED, "mnist", remotes)
        monkeypatch.setenv("JOPEQ_CACHE", str(tmp_path / "cache"))
        with pytest.raises(DataError, match=r"train-labels.*was removed"):
            load_with_bar("mnist", None)
    finally:
        server.shutdown()
        server.server_close()
    assert sorted(path.name for path in (tmp_path / "cache" / "mnist").glob("*.gz")) == names[:1]
