"""Pages are Markdown templates in ``pages/``; results fill in their numbers and tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jinja2

from jopeq.errors import DataError, JoPEQError
from jopeq.files import atomic
from paper import words

TEMPLATES = Path(__file__).parent / "pages"
END = "<!-- end -->"


class ClaimError(JoPEQError):
    """Kept results do not support sentences of a page."""


def refuse(failed: Sequence[str], page: str, claims: str) -> None:
    """Raise an error that lists the claims that fail, if any does."""
    if failed:
        lines = "".join(f"- {sentence}\n" for sentence in failed)
        raise ClaimError(
            f"the results do not support these sentences of {page}:\n{lines}"
            f"look at the numbers and rewrite each sentence, and its claim in {claims}"
        )


def environment() -> jinja2.Environment:
    """Templates of Markdown, with filters that write numbers and tables."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown, from our own results
    )
    for word in ("markdown", "epsilon_up", "number", "percent", "plain", "short", "signed"):
        made.filters[word] = getattr(words, word)
    return made


def fill_in(page: Path, start: str, text: str) -> None:
    """Put a table between the comment ``start`` of a page and the next ``END``."""
    head, found, rest = page.read_text(encoding="utf-8").partition(start)
    _, end, tail = rest.partition(END)
    if not (found and end):
        raise DataError(f"{page} lacks {start!r} or {END!r}: put them where the table belongs")
    with atomic(page) as file:
        file.write(f"{head}{found}\n\n{text}\n\n{end}{tail}".encode())
