"""A headless Chromium for tests, where one can be started; the tests are skipped elsewhere.

The one of the machine is taken (``apt-get install chromium``; see ``pipe.py``). Else it comes by
pip: ``pip install 'jopeq[browser]'`` (Qt WebEngine, which is Chromium), and needs the
system libraries every browser needs, such as libEGL and libnss3. ``make docs`` installs it and
sets JOPEQ_BROWSER=required, so that there nothing is skipped.
"""

import functools
import http.server
import json
import os
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.browser.pipe import PipeBrowser, find_chromium

collect_ignore = ["chromium.py"]  # a program, not a module: it needs what may be missing

_SCRIPT = Path(__file__).with_name("chromium.py")
_ENVIRONMENT = {
    "QT_QPA_PLATFORM": "offscreen",
    "QTWEBENGINE_DISABLE_SANDBOX": "1",  # it opens our own pages, and containers have no sandbox
    "QTWEBENGINE_CHROMIUM_FLAGS": "--disable-gpu --no-proxy-server",
}
_PATIENCE = 900.0  # seconds: only a hang reaches it
_REMEDY = "apt-get install chromium, or pip install 'jopeq[browser]' with libEGL and libnss3"


class Browser:
    """Talks to chromium.py."""

    def __init__(self, log):
        self.log = log
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, str(_SCRIPT)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **_ENVIRONMENT},
            )
        self.is_ready = self._answer() == "ready"

    def open(self, url):
        """Load a page: whether it loaded, what the console said, what it wanted from outside."""
        return self._ask("open", url)

    def heard(self):
        """What the console said and the page wanted since it was opened."""
        return self._ask("heard")

    def run(self, script):
        """The value of a JavaScript expression."""
        return self._ask("run", script)

    def until(self, script, seconds=600.0):
        """Whether the expression becomes true before a time that only a hang reaches."""
        end = time.monotonic() + seconds
        while not self.run(script):
            if time.monotonic() > end:
                return False
            self.heard()  # lets some time pass
        return True

    def shoot(self, path, width=1200, height=900):
        """Save a picture of the window."""
        assert self._ask("shoot", str(path), width, height)

    def close(self):
        """End the process."""
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _ask(self, name, *arguments):
        self._process.stdin.write(json.dumps([name, arguments]) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        assert answer is not None, f"the browser is gone: {self.log.read_text()[-2000:]}"
        assert "error" not in answer, answer["error"]
        return answer["value"]

    def _answer(self):
        """The next line; None if the process is gone, or had to be ended for its silence."""
        watch = threading.Timer(_PATIENCE, self._process.kill)
        watch.start()
        try:
            line = self._process.stdout.readline()
        finally:
            watch.cancel()
        return json.loads(line) if line else None


def _not_here(why):
    if os.environ.get("JOPEQ_BROWSER") == "required":
        pytest.fail(f"no browser: {why}: {_REMEDY}")
    pytest.skip(f"no browser: {why}: {_REMEDY}")


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    if program := find_chromium():
        started = PipeBrowser(program, tmp_path_factory.mktemp("browser"))
        yield started
        started.close()
        return
    if find_spec("PySide6") is None or find_spec("PySide6.QtWebEngineCore") is None:
        _not_here("Qt WebEngine is not installed")
    started = Browser(tmp_path_factory.mktemp("browser") / "log.txt")
    if not started.is_ready:
        started.close()
        _not_here(started.log.read_text().strip()[-500:] or "it does not answer")
    yield started
    started.close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="session")
def serve():
    """Serves a folder on the loopback interface and gives its address."""
    servers = []

    def start(folder):
        handler = functools.partial(_Quiet, directory=str(folder))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
