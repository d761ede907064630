"""A headless Chromium (Qt WebEngine) in a process of its own: JSON commands in, JSON answers out.

Run by conftest.py. Pages may ask for nothing but files of the disk and the loopback interface:
other requests are blocked and reported.
"""

from __future__ import annotations

import json
import sys

from PySide6.QtCore import QEventLoop, QTimer, QUrl
from PySide6.QtWebEngineCore import (
    QWebEnginePage,
    QWebEngineProfile,
    QWebEngineSettings,
    QWebEngineUrlRequestInterceptor,
)
from PySide6.QtWebEngineWidgets import QWebEngineView
from PySide6.QtWidgets import QApplication

PATIENCE = 600_000  # milliseconds: only a hang reaches it


class Requests(QWebEngineUrlRequestInterceptor):
    """Blocks and keeps what goes to the outside."""

    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []

    def interceptRequest(self, info) -> None:
        url = info.requestUrl()
        if url.scheme() in ("http", "https", "ws", "wss") and url.host() != "127.0.0.1":
            self.outside.append(url.toString())
            info.block(True)


class Page(QWebEnginePage):
    """Keeps warnings and errors of the console."""

    def __init__(self, profile: QWebEngineProfile) -> None:
        super().__init__(profile)
        self.complaints: list[str] = []

    def javaScriptConsoleMessage(self, level, message, line, source) -> None:
        if level != QWebEnginePage.JavaScriptConsoleMessageLevel.InfoMessageLevel:
            self.complaints.append(f"{source}:{line}: {message}")


class Chromium:
    """One view; every command waits until it is done."""

    def __init__(self) -> None:
        self.profile = QWebEngineProfile()  # without a name: nothing is kept
        self.requests = Requests()
        self.profile.setUrlRequestInterceptor(self.requests)
        self.page = Page(self.profile)
        self.page.settings().setAttribute(
            QWebEngineSettings.WebAttribute.LocalContentCanAccessFileUrls, True
        )
        self.view = QWebEngineView()
        self.view.setPage(self.page)
        self.view.resize(1200, 900)
        self.view.show()

    def open(self, url: str) -> dict[str, object]:
        """Load a page; what it complained of and what it wanted from outside."""
        self.page.complaints, self.requests.outside = [], []
        self.page.load(QUrl(url))
        is_loaded = self._wait_for(self.page.loadFinished)
        return {"loaded": is_loaded, **self.heard()}

    def heard(self) -> dict[str, object]:
        """Complaints and outside requests since the page was opened."""
        self._rest(50)
        return {"complaints": self.page.complaints, "outside": self.requests.outside}

    def run(self, script: str) -> object:
        """The value of an expression in the page, after a moment for its consequences."""
        loop, found = QEventLoop(), []

        def done(value: object) -> None:
            found.append(value)
            loop.quit()

        self.page.runJavaScript(f"JSON.stringify({script})", 0, done)
        QTimer.singleShot(PATIENCE, loop.quit)
        if not found:
            loop.exec()
        if not found:
            raise TimeoutError(f"no answer to {script!r:.200}")
        return json.loads(found[0]) if found[0] else None

    def shoot(self, path: str, width: int = 1200, height: int = 900) -> bool:
        """A picture of the view."""
        self.view.resize(width, height)
        self._rest(400)
        return self.view.grab().save(path)

    def _rest(self, milliseconds: int) -> None:
        loop = QEventLoop()
        QTimer.singleShot(milliseconds, loop.quit)
        loop.exec()

    def _wait_for(self, signal) -> object:
        loop, found = QEventLoop(), []

        def done(value: object) -> None:
            found.append(value)
            loop.quit()

        signal.connect(done)
        QTimer.singleShot(PATIENCE, loop.quit)
        loop.exec()
        signal.disconnect(done)
        return found[0] if found else False


def main() -> None:
    application = QApplication(sys.argv)
    chromium = Chromium()
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            answer = {"value": getattr(chromium, name)(*arguments)}
        except Exception as error:
            answer = {"error": repr(error)}
        print(json.dumps(answer), flush=True)
    chromium.view.setPage(None)
    chromium.page.deleteLater()
    application.quit()


if __name__ == "__main__":
    main()
