"""The pages as they are written; tests/browser looks at the pages as they are shown."""

import re
import shlex
from pathlib import Path

import click
import pytest
from typer.main import get_command

from jopeq.cli import app
from jopeq_lab.cli import app as lab_app
from jopeq_lab.explorer import page
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
    page = cli_page.PAGE.read_text("utf-8").partition(cli_page.START)[2].lstrip()
    bare = re.sub(r"^```text\n.*?^```\n\n", "", page, flags=re.MULTILINE | re.DOTALL)
    assert bare == cli_page.page_of({})
    assert page.count("```text") == len(cli_page.EXAMPLES)


def _commands(code):
    """Words of every call of jopeq and jopeq-lab; a quotation may go on in the next lines."""
    lines = code.replace("\\\n", " ").splitlines()
    for first, line in enumerate(lines):
        if line.startswith(("jopeq ", "jopeq-lab ")):
            for last in range(first, len(lines)):
                try:
                    yield shlex.split("\n".join(lines[first : last + 1]), comments=True)
                except ValueError:  # no closing quotation
                    continue
                break


def test_commands_of_the_pages_exist_with_their_options():
    """Words are read, nothing is run."""
    count = 0
    for path in PAGES:
        for _, language, code in _BLOCK.findall(path.read_text("utf-8")):
            for name, *words in _commands(code) if language == "sh" else ():
                command = get_command({"jopeq": app, "jopeq-lab": lab_app}[name])
                while isinstance(command, click.Group) and words[0] in command.commands:
                    command, name = command.commands[words[0]], words.pop(0)
                context = click.Context(command, info_name=name)
                _, left, _ = command.make_parser(context).parse_args(words)
                assert not (left and isinstance(command, click.Group)), (path, left)
                count += 1
    assert count > 30
