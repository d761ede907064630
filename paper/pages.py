"""Pages are Markdown templates in ``pages/``; results fill in their numbers and tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from paper import words

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "pages"),
    undefined=StrictUndefined,
    keep_trailing_newline=True,
    trim_blocks=True,
    lstrip_blocks=True,
)
for _word in (words.change, words.markdown, words.number, words.plain, words.signed):
    _TEMPLATES.filters[_word.__name__] = _word


def render(template: str, **values: Any) -> str:
    """The text of a page."""
    return _TEMPLATES.get_template(template).render(**values)
