"""A Chromium of this machine, asked through its debugging pipe: no package is needed."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-extensions", "--disable-background-networking"),
    *("--no-proxy-server", "--hide-scrollbars", "--remote-debugging-pipe"),
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
_COMPLAINTS = ("warning", "error", "assert")
_PATIENCE = 900.0  # seconds: only a hang reaches it


def find_chromium():
    """The program, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class PipeBrowser:
    """The same commands as ``conftest.Browser``. Names outside this machine are not resolved."""

    def __init__(self, program, folder):
        self.log = folder / "log.txt"
        down, up = (tuple(fcntl.fcntl(one, fcntl.F_DUPFD, 20) for one in os.pipe()) for _ in "du")
        self._numbers, self._events, self._bytes = count(1), [], b""
        self._complaints, self._outside = [], []
        with self.log.open("w") as errors:
            self._process = subprocess.Popen(
                [program, *_OPTIONS, f"--user-data-dir={folder / 'profile'}", "about:blank"],
                preexec_fn=lambda: (os.dup2(down[0], 3), os.dup2(up[1], 4)),
                pass_fds=(3, 4),
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
            )
        os.close(down[0])
        os.close(up[1])
        self._down, self._up, self._session = down[1], up[0], None
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        given = {"targetId": target, "flatten": True}
        self._session = self._ask("Target.attachToTarget", **given)["sessionId"]
        for part in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{part}.enable")

    def open(self, url):
        """Load a page: whether it loaded, what the console said, what it wanted from outside."""
        self._complaints, self._outside, self._events = [], [], []
        failed = self._ask("Page.navigate", url=url).get("errorText")
        while not failed and "Page.loadEventFired" not in self._events:
            self._read()
        return {"loaded": not failed, **self.heard()}

    def heard(self):
        """What the console said and the page wanted since it was opened."""
        end = time.monotonic() + 0.05
        while time.monotonic() < end:
            self._read(0.05)
        return {"complaints": self._complaints, "outside": self._outside}

    def run(self, script):
        """The value of a JavaScript expression."""
        given = {"expression": f"JSON.stringify({script})", "awaitPromise": True}
        found = self._ask("Runtime.evaluate", **given)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        value = found["result"].get("value")
        return json.loads(value) if value else None

    def until(self, script, seconds=600.0):
        """Whether the expression becomes true before a time that only a hang reaches."""
        end = time.monotonic() + seconds
        while not self.run(script):
            if time.monotonic() > end:
                return False
            self.heard()
        return True

    def shoot(self, path, width=1200, height=900, *, is_dark=False):
        """Save a picture of the window."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._ask("Emulation.setDeviceMetricsOverride", **size)
        look = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[look])
        end = time.monotonic() + 0.4
        while time.monotonic() < end:
            self._read(0.1)
        found = self._ask("Page.captureScreenshot", format="png")
        Path(path).write_bytes(base64.b64decode(found["data"]))

    def close(self):
        """End the process."""
        self._session = None  # this is asked of the browser, not of the page
        self._ask("Browser.close")
        os.close(self._down)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._up)

    def _ask(self, method, **parameters):
        number = next(self._numbers)
        asked = {"id": number, "method": method, "params": parameters}
        if self._session:
            asked["sessionId"] = self._session
        left = json.dumps(asked).encode() + b"\0"
        while left:  # a pipe takes some at a time
            left = left[os.write(self._down, left) :]
        while True:
            told = self._read()
            if told and told.get("id") == number:
                assert "error" not in told, (method, told["error"])
                return told["result"]

    def _read(self, seconds=_PATIENCE):
        """The next message; None if none comes in time."""
        end = time.monotonic() + seconds
        while b"\0" not in self._bytes:
            is_there = select.select([self._up], [], [], max(0.0, end - time.monotonic()))[0]
            if not is_there:
                assert seconds < _PATIENCE, "the browser does not answer"
                return None
            more = os.read(self._up, 1 << 20)
            assert more, f"the browser is gone: {self.log.read_text()[-2000:]}"
            self._bytes += more
        line, _, self._bytes = self._bytes.partition(b"\0")
        told = json.loads(line)
        self._note(told.get("method"), told.get("params", {}))
        return told

    def _note(self, method, told):
        self._events.append(method)
        if method == "Runtime.exceptionThrown":
            self._complaints.append(str(told["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and told["type"] in _COMPLAINTS:
            self._complaints.append(str([one.get("value") for one in told["args"]]))
        elif method == "Log.entryAdded" and told["entry"]["level"] in _COMPLAINTS:
            self._complaints.append(told["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            url = urlsplit(told["request"]["url"])
            if url.scheme in ("http", "https", "ws", "wss") and url.hostname != "127.0.0.1":
                self._outside.append(told["request"]["url"])
