"""The documentation site: builds strictly, links hold, and every page works in a browser."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import lru_cache
from html.parser import HTMLParser
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest

ROOT = Path(__file__).parents[2]
_IMPORT = re.compile(r"^(?:>>> |\.\.\. )?\s*from (jopeq[\w.]*) import ([\w, ]+)", re.MULTILINE)
_VISIBLE = """
Array.from(document.querySelectorAll('article img')).map(image => {
    const box = image.getBoundingClientRect();
    return [image.getAttribute('src'), image.complete && image.naturalWidth > 0,
            box.width > 100 && box.height > 50];
})"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if find_spec("mkdocs") is None or find_spec("mkdocstrings") is None:
        pytest.skip("MkDocs is not installed: pip install 'jopeq[docs]'")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


class Links(HTMLParser):
    """Addresses a page refers to, and the anchors it has."""

    def __init__(self):
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors.update(found[key] for key in ("id", "name") if found.get(key))
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag in ("img", "script", "iframe") and found.get("src"):
            self.loaded.append(found["src"])
        if tag == "link" and "canonical" not in found.get("rel", ""):
            self.loaded.append(found["href"])


@lru_cache
def _pages(folder):
    pages = {}
    for path in sorted(folder.rglob("*.html")):
        pages[path.relative_to(folder).as_posix()] = found = Links()
        found.feed(path.read_text(encoding="utf-8"))
    return pages


def test_internal_links_lead_somewhere(site):
    pages = _pages(site)
    assert len(pages) > 15
    broken, checked = [], 0
    for name, page in pages.items():
        if name == "404.html":  # served at any address: its links are absolute
            continue
        for link in page.links + page.loaded:
            if link.startswith(("http://", "https://", "mailto:", "data:", "javascript:")):
                continue
            target, anchor = urldefrag(urljoin(name, link))
            target = unquote(target) or name
            if (site / target).is_dir():
                target = f"{target}/index.html".removeprefix("./").replace("//", "/")
            checked += 1
            is_there = (site / target).is_file()
            anchors = pages[target].anchors if anchor and target in pages else {unquote(anchor)}
            if not is_there or unquote(anchor) not in anchors:
                broken.append((name, link))
    assert not broken
    assert checked > 1000


def test_pages_load_nothing_from_elsewhere(site):
    for name, page in _pages(site).items():
        outside = [link for link in page.loaded if link.startswith(("http:", "https:", "//"))]
        assert not outside, name


def test_the_reference_has_the_public_names(site):
    import jopeq

    anchors = _pages(site)["api/jopeq.html"].anchors | _pages(site)["api/privacy.html"].anchors
    shown = {anchor.rpartition(".")[2] for anchor in anchors}
    assert set(jopeq.__all__) - {"__version__"} <= shown


def test_the_reference_has_what_pages_and_examples_import(site):
    """By the place where a name is defined: jopeq.noise.Laplace is in jopeq.noise.law."""
    pages = _pages(site).items()
    anchors = set().union(*(page.anchors for name, page in pages if name.startswith("api/")))
    texts, scripts = (ROOT / "docs").glob("*.md"), (ROOT / "examples").rglob("*.py")
    sources = [ROOT / "README.md", *texts, *scripts]
    imported = set()
    for path in sources:
        for module, names in _IMPORT.findall(path.read_text(encoding="utf-8")):
            imported |= {(module, name.split()[0]) for name in names.split(",")}
    assert len(imported) > 30
    missing = {(module, name) for module, name in imported if _home(module, name) not in anchors}
    assert missing == set()


def _home(module, name):
    if find_spec(f"{module}.{name}") if hasattr(import_module(module), "__path__") else None:
        return f"{module}.{name}"
    found = getattr(import_module(module), name)
    return f"{found.__module__}.{found.__qualname__}"


def test_parameters_that_share_a_line_keep_types_and_defaults_of_their_own(site):
    page = (site / "api" / "flower.html").read_text(encoding="utf-8")
    text = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    told = set(re.findall(r" unsigned \( ?(\w+)[, ]", text))
    assert told == {"bool"}


def test_the_page_of_commands_has_them_all():
    from jopeq.cli import app

    names = {one.name or one.callback.__name__ for one in app.registered_commands}
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert {name for name in names if f"| `jopeq {name}` |" not in text} == set()


def test_every_page_works_in_a_browser(site, browser, serve, tmp_path):
    address = serve(site)
    figures = 0
    browser.shoot(tmp_path / "phone.png", 400, 900)  # all pages in a window of this size
    for name in _pages(site):
        state = browser.open(f"{address}/{name}")
        assert state == {"loaded": True, "complaints": [], "outside": []}, name
        assert browser.run("document.querySelector('article h1').innerText.length > 0"), name
        assert browser.run("document.querySelectorAll('.arithmatex:not(:has(.katex))').length") == 0
        assert browser.run("document.documentElement.scrollWidth <= innerWidth"), name
        browser.run("document.querySelectorAll('img').forEach(image => image.loading = 'eager')")
        browser.until("Array.from(document.images).every(image => image.complete)")
        for source, is_loaded, is_visible in browser.run(_VISIBLE):
            assert is_loaded, (name, source)
            assert is_visible, (name, source)
            figures += 1
        assert browser.heard()["outside"] == [], name
    assert figures >= 10
    browser.shoot(tmp_path / "desk.png")
