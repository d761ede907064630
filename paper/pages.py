"""Pages are Markdown templates in ``pages/``; results fill in their numbers and tables."""

from __future__ import annotations

from pathlib import Path

import jinja2

from jopeq.errors import JoPEQError
from paper import words

TEMPLATES = Path(__file__).parent / "pages"


class ClaimError(JoPEQError):
    """Kept results do not support sentences of a page."""


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
