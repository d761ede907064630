"""Numbers, tables and pages as they are written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import jinja2
import pandas as pd

from jopeq.errors import DataError, JoPEQError
from jopeq.files import atomic
from jopeq.privacy.guarantee import places_up


def signed(value: float, digits: int = 2, plus: str = "") -> str:
    """Write a true minus sign, and no sign before a zero. ``plus="+"`` is for differences.

    >>> signed(-0.4531), signed(0.93), signed(-0.001), signed(2, 1, "+")
    ('−0.45', '0.93', '0.00', '+2.0')
    """
    text = f"{value:{plus}.{digits}f}"
    return text.replace("-", "−") if float(text) else f"{0:.{digits}f}"


def percent(share: float) -> str:
    """Write a share with two digits.

    >>> percent(0.0026), percent(0.161), percent(3e-5)
    ('0.26%', '16%', '< 0.01%')
    """
    if 0.0 < share < 1e-4:
        return "< 0.01%"
    return f"{100 * share:.2g}%" if share < 0.0995 else f"{100 * share:.0f}%"


def short(value: float) -> str:
    """Write two digits; small and large numbers as powers of ten.

    >>> short(0.29), short(1.6e-5), short(12345.0)
    ('0.29', '1.6·10⁻⁵', '1.2·10⁴')
    """
    if value != 0.0 and not 1e-3 <= abs(value) < 1e4:
        mantissa, exponent = f"{value:.1e}".split("e")
        raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return f"10{raised}" if mantissa == "1.0" else f"{mantissa}·10{raised}"
    return f"{value:.2g}" if abs(value) < 100 else f"{value:,.0f}"


def listed(items: Sequence[str]) -> str:
    """List items as in a sentence.

    >>> listed(["Z"]), listed(["Z", "A2", "D4"])
    ('Z', 'Z, A2 and D4')
    """
    return " and ".join(filter(None, (", ".join(items[:-1]), items[-1])))


def number(value: float | None, digits: int = 2) -> str:
    """Write a number with this many digits; ∞, or – for none.

    >>> number(1.256), number(float("inf")), number(None), number(float("nan"))
    ('1.26', '∞', '–', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    return "∞" if math.isinf(value) else signed(value, digits)


def epsilon_up(value: float | None) -> str:
    """A proven ε, never below its value.

    >>> epsilon_up(8.041), epsilon_up(float("inf")), epsilon_up(None)
    ('8.05', '∞', 'none')
    """
    if value is None or math.isnan(value):
        return "none"
    return "∞" if math.isinf(value) else places_up(value)


def plain(value: float | None) -> str:
    """Write a number as short as possible; – for none."""
    return "–" if value is None or math.isnan(value) else f"{value:g}"


def percents(accuracies: pd.Series) -> str:
    """Mean ± standard deviation over seeds, in percent; of one seed its value alone."""
    spread = f" ± {100 * accuracies.std():.2f}" if len(accuracies) > 1 else ""
    return f"{100 * accuracies.mean():.2f}{spread}"


def code(label: str) -> str:
    """A row's label with the scheme's name as code.

    >>> code("response, R=2, spread auto")
    '`response`, R=2, spread auto'
    """
    name, comma, rest = label.partition(",")
    return f"`{name}`{comma}{rest}"


def markdown(frame: pd.DataFrame) -> str:
    """A Markdown table of a frame of texts, without its index."""
    rows = [frame.columns, ["---"] * frame.shape[1], *frame.itertuples(index=False)]
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join([lines[0], lines[1].replace(" ", ""), *lines[2:]])


def decibels(snr: pd.Series) -> float:
    """20·log10 of the mean SNR, as the authors' code prints it; infinite where nothing was lost."""
    return math.inf if snr.isna().any() else 20.0 * math.log10(snr.mean())


# Pages are Markdown templates in ``pages/``; results fill in their numbers and tables


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
    for word in (markdown, epsilon_up, number, percent, plain, short, signed):
        made.filters[word.__name__] = word
    return made


def fill_in(page: Path, start: str, text: str) -> None:
    """Put a table between the comment ``start`` of a page and the next ``END``."""
    head, found, rest = page.read_text(encoding="utf-8").partition(start)
    _, end, tail = rest.partition(END)
    if not (found and end):
        raise DataError(f"{page} lacks {start!r} or {END!r}: put them where the table belongs")
    with atomic(page) as file:
        file.write(f"{head}{found}\n\n{text}\n\n{end}{tail}".encode())
