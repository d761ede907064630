"""The pages as they are written; tests/browser looks at the pages as they are shown."""

import re
from pathlib import Path

import pytest

from jopeq.lab.explorer import page
from tools import cli_page

ROOT = Path(__file__).parents[1]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]
_BLOCK = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_code_fits_the_page_and_says_what_it_is(path):
    text = path.read_text("utf-8")
    for _, language, code in _BLOCK.findall(text):
        assert language, code
        assert (">>>" in code) == (language == "pycon"), code  # outputs are no Python
        most = cli_page.WIDEST if path == cli_page.PAGE and language == "text" else 80
        assert [line for line in code.splitlines() if len(line) > most] == []
    assert re.findall(r"\d[\d.]*e\+\d+", text) == []  # 31,400 and not 3.14e+04


def test_labels_of_the_navigation_are_titles_of_pages():
    """MkDocs takes them from the pages, but for the explorer, which is no Markdown."""
    written = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    assert re.findall(r"- (.+): (\S+)$", written, re.MULTILINE) == [("Explorer", "explore.html")]
    assert "<h1>Explorer</h1>" in page(home="index.html")


def test_the_reference_of_commands_is_what_the_program_knows():
    """What the examples printed apart, which another version changes."""
    page = cli_page.PAGE.read_text("utf-8")
    bare = re.sub(r"^```text\n.*?^```\n\n", "", page, flags=re.MULTILINE | re.DOTALL)
    assert bare == cli_page.page_of({})
    assert page.count("```text") == len(cli_page.EXAMPLES)
