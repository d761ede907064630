"""Numbers and tables as the pages and figures write them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jopeq.privacy.guarantee import places_up

if TYPE_CHECKING:
    import pandas as pd


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
