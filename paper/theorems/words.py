"""Numbers as docs/theory.md and its figures write them."""

from __future__ import annotations

from collections.abc import Sequence


def signed(value: float, digits: int = 2) -> str:
    """With a true minus sign; no minus before a zero.

    >>> signed(-0.4531), signed(0.93), signed(-0.001)
    ('−0.45', '0.93', '0.00')
    """
    text = f"{value:.{digits}f}"
    return text.replace("-", "−") if float(text) else f"{0:.{digits}f}"


def percent(share: float) -> str:
    """Two digits.

    >>> percent(0.0026), percent(0.161), percent(3e-5)
    ('0.26%', '16%', '< 0.01%')
    """
    if 0.0 < share < 1e-4:
        return "< 0.01%"
    return f"{100 * share:.2g}%" if share < 0.0995 else f"{100 * share:.0f}%"


def short(value: float) -> str:
    """Two digits; small and large numbers as powers of ten.

    >>> short(0.29), short(1.6e-5), short(12345.0)
    ('0.29', '1.6·10⁻⁵', '1.2·10⁴')
    """
    if value != 0.0 and not 1e-3 <= abs(value) < 1e4:
        mantissa, exponent = f"{value:.1e}".split("e")
        raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return f"10{raised}" if mantissa == "1.0" else f"{mantissa}·10{raised}"
    return f"{value:.2g}" if abs(value) < 100 else f"{value:,.0f}"


def listed(items: Sequence[str]) -> str:
    """As a sentence lists them.

    >>> listed(["Z"]), listed(["Z", "A2", "D4"])
    ('Z', 'Z, A2 and D4')
    """
    return " and ".join(filter(None, (", ".join(items[:-1]), items[-1])))
