"""Griffe extension: doctests that stand without a heading become an "Examples" section.

The docstrings of this package end in examples, as most do, without the heading NumPy's style has
for them. Markdown would read ``>>>`` as a quotation in a quotation in a quotation.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_FIRST_PROMPT = re.compile(r"^>>> ", re.MULTILINE)
_HEADING = re.compile(r"^Examples\n-+$", re.MULTILINE)


def with_examples_section(text: str) -> str:
    """The docstring, its first example under a heading."""
    prompt = _FIRST_PROMPT.search(text)
    if prompt is None or _HEADING.search(text):
        return text
    before, after = text[: prompt.start()].rstrip(), text[prompt.start() :]
    return f"{before}\n\nExamples\n--------\n{after}"


class ExamplesSections(Extension):
    """Applies ``with_examples_section`` to every docstring."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called for each object that was loaded."""
        if obj.docstring is not None:
            obj.docstring.value = with_examples_section(obj.docstring.value)
