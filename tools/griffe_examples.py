"""Griffe extension: the docstrings of this package as Griffe's NumPy style reads them.

Doctests that stand without a heading become an "Examples" section: Markdown would read ``>>>`` as a
quotation in a quotation in a quotation. Parameters that share a line become one each, because
Griffe gives all of them the type and the default of the first. A default that the docstring writes
next to the type is left to the signature.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from griffe import Extension, Object

_FIRST_PROMPT = re.compile(r"^>>> ", re.MULTILINE)
_HEADING = re.compile(r"^Examples\n-+$", re.MULTILINE)
_PARAMETERS = re.compile(r"^Parameters\n-+\n(.*?)(?=^\w[^\n]*\n-+$|\Z)", re.MULTILINE | re.DOTALL)
_ENTRY = re.compile(r"^(\w+(?:, \w+)*)( : [^\n]*)?\n((?:[ \t]+[^\n]*\n|\n)*)", re.MULTILINE)
_DEFAULT = re.compile(r" \(default: .*\)$")


def with_examples_section(text: str) -> str:
    """The docstring, its first example under a heading."""
    prompt = _FIRST_PROMPT.search(text)
    if prompt is None or _HEADING.search(text):
        return text
    before, after = text[: prompt.start()].rstrip(), text[prompt.start() :]
    return f"{before}\n\nExamples\n--------\n{after}"


def with_single_parameters(text: str) -> str:
    """The docstring, each parameter in an entry of its own, without a default."""
    found = _PARAMETERS.search(text)
    if found is None:
        return text
    body = "".join(_split(found[1] if found[1].endswith("\n") else f"{found[1]}\n"))
    return f"{text[: found.start(1)]}{body}{text[found.end(1) :]}".rstrip("\n")


def _split(body: str) -> Iterator[str]:
    end = 0
    for entry in _ENTRY.finditer(body):
        yield body[end : entry.start()]
        names, kind, about = entry.groups()
        for name in names.split(", "):
            yield f"{name}{_DEFAULT.sub('', kind or '')}\n{about}"
        end = entry.end()
    yield body[end:]


class ExamplesSections(Extension):
    """Applies both to every docstring."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called for each object that was loaded."""
        if obj.docstring is not None:
            text = with_single_parameters(obj.docstring.value)
            obj.docstring.value = with_examples_section(text)
