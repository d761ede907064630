"""A drawn figure as SVG to be put inside a page, readable on light and on dark ground."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

_SETTINGS = {
    "svg.hashsalt": "jopeq",  # the same numbers make the same text
    "savefig.facecolor": "none",
    "axes.facecolor": "none",
    "legend.facecolor": "white",
}
# Ink and paper are the page's own: the text colour and --paper.
_INK = re.compile(r"#000000\b")
_PAPER = re.compile(r"#ffffff\b")
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
_DARKEST = 0.06  # relative luminance: below, a line is lost on dark paper
_NAMES = re.compile(r'(\bid="|url\(#|href="#)')


def inline_svg(save: Callable[[Path], None], name: str, title: str) -> str:
    """What ``save`` draws into the .svg file it is given.

    ``name`` keeps the ids of several figures in one page apart.
    """
    import matplotlib as mpl

    with TemporaryDirectory() as folder, mpl.rc_context(_SETTINGS):  # type: ignore[arg-type]
        path = Path(folder) / "figure.svg"
        save(path)
        text = path.read_text(encoding="utf-8")
    return embedded(text, name, title)


def embedded(text: str, name: str, title: str) -> str:
    """The ``<svg>`` element of a file, without a size of its own, in the page's colours."""
    start = text.find("<svg")
    if start < 0:
        raise ValueError(f"figure {name!r} is no SVG")
    text = re.sub(r"<metadata>.*?</metadata>", "", text[start:], flags=re.DOTALL)
    text = _NAMES.sub(rf"\g<1>{name}-", text)
    text = _PAPER.sub("var(--paper)", _INK.sub("currentColor", text))
    text = _COLOUR.sub(lambda colour: _on_both(colour[0]), text)
    head = re.match(r"<svg[^>]*>", text)
    box = re.search(r'viewBox="[^"]*"', text)
    if head is None or box is None:
        raise ValueError(f"figure {name!r} is no SVG with a viewBox")
    opening = (
        f'<svg {box[0]} role="img" aria-label="{escape(title, quote=True)}" '
        'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'
    )
    return opening + text[head.end() :].strip()


def _on_both(colour: str) -> str:
    """A dark colour, half way to white where the page is dark.

    >>> _on_both("#440154"), _on_both("#1f77b4")
    ('light-dark(#440154, #a180a9)', '#1f77b4')
    """
    parts = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    weights = (0.2126, 0.7152, 0.0722)
    linear = [((part / 255 + 0.055) / 1.055) ** 2.4 for part in parts]
    if sum(w * x for w, x in zip(weights, linear, strict=True)) >= _DARKEST:
        return colour
    return f"light-dark({colour}, #{''.join(f'{(part + 255) // 2:02x}' for part in parts)})"
