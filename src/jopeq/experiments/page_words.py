"""Numbers, tables and paragraphs as the generated pages write them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def signed(value: float, digits: int = 2) -> str:
    """With a true minus sign; no minus before a zero."""
    text = f"{value:.{digits}f}"
    return text.replace("-", "−") if float(text) else f"{0:.{digits}f}"


def counted(number: int, thing: str) -> str:
    """So many of a thing.

    >>> counted(1, "seed"), counted(3, "seed")
    ('1 seed', '3 seeds')
    """
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def percent(share: float) -> str:
    """Two digits, or that there is hardly anything."""
    if 0.0 < share < 1e-4:
        return "< 0.01%"
    return f"{100 * share:.2g}%" if share < 0.0995 else f"{100 * share:.0f}%"


def short(value: float) -> str:
    """Two digits, small and large ones as powers of ten."""
    if value != 0.0 and not 1e-3 <= abs(value) < 1e4:
        mantissa, exponent = f"{value:.1e}".split("e")
        raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return f"10{raised}" if mantissa == "1.0" else f"{mantissa}·10{raised}"
    return f"{value:.2g}" if abs(value) < 100 else f"{value:,.0f}"


def reflow(text: str, width: int = 100) -> str:
    """Paragraphs and list items filled to ``width``; tables, code, figures and headings as is."""
    blocks = []
    for block in text.split("\n\n"):
        start = block.lstrip("\n")
        if start.startswith(("|", "`" * 3, "!", "#", " ")):
            blocks.append(block)
        elif start.startswith("- "):
            items = ("\n" + block.strip("\n")).split("\n- ")[1:]
            filled = [_fill("- " + item, width, "  ") for item in items]
            blocks.append("\n".join(filled) + "\n" * block.endswith("\n"))
        else:
            blocks.append(_fill(block, width, ""))
    return "\n\n".join(blocks)


def _fill(block: str, width: int, indent: str) -> str:
    lead, tail = "\n" * block.startswith("\n"), "\n" * block.endswith("\n")
    filled = textwrap.fill(
        " ".join(block.split()),
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lead + filled + tail
