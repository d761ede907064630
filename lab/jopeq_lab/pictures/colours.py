"""One colour and one marker for each scheme, in every figure and page.

Eight colours, chosen so that any two differ by at least 23 in CIELAB for all kinds of colour vision
(Machado, Oliveira and Fernandes 2009, full severity); another eight do so on a dark page. Names are
written in these colours, so each has a contrast of at least 4.5 to its page. Schemes that differ
only in their noise share a colour and differ in their marker; so do ``jopeq`` and ``clients``.

What is no scheme is drawn in ``INK``, ``GREY`` or ``FAINT``, or, where order counts, in steps of
``ORDERED``.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Look(NamedTuple):
    """A scheme's looks: ``colour`` on white, ``dark`` on a dark page, Matplotlib's marker."""

    colour: str
    dark: str
    marker: str

    @property
    def shape(self) -> str:
        """The marker's name in Vega."""
        return _SHAPES[self.marker]


_WAYS = ("up", "down", "left", "right")
_SHAPES = dict(
    zip(
        ("o", "s", "D", "P", "X", "^", "v", "<", ">"),
        ("circle", "square", "diamond", "cross", "wedge", *map("triangle-{}".format, _WAYS)),
        strict=True,
    )
)
_PLAIN = ("#000000", "#FFFFFF")
_QUANTIZED = ("#4E5664", "#899491")
_NOISE = ("#9C6E00", "#E58308")
_JOPEQ = ("#64229A", "#A96FB4")
_MVU = ("#502D20", "#FFD573")
_RESPONSE = ("#2107E7", "#0A83FE")
_SPHERE = ("#7A3305", "#FA3D4A")
_RECORDS = ("#00874C", "#3AE4A0")

LOOKS = {
    "none": Look(*_PLAIN, "o"),
    "central": Look(*_PLAIN, "X"),
    "sdq": Look(*_QUANTIZED, "s"),
    "dq": Look(*_QUANTIZED, "D"),
    "laplace": Look(*_NOISE, "o"),
    "t": Look(*_NOISE, "s"),
    "laplace+sdq": Look(*_NOISE, "^"),
    "t+sdq": Look(*_NOISE, "v"),
    "jopeq": Look(*_JOPEQ, "^"),
    "mvu": Look(*_MVU, "P"),
    "response": Look(*_RESPONSE, "o"),
    "sphere": Look(*_SPHERE, "D"),
    "clients": Look(*_JOPEQ, "s"),
    "records": Look(*_RECORDS, "o"),
}
"""Every scheme, and ``central``: a trusted server that adds the noise."""

INK, GREY, FAINT, PAGE = (
    "#000000",
    "#666666",
    "#b0b0b0",
    "#ffffff",
)  # FAINT: of Matplotlib's grids alone
ORDERED = ("#270144", "#3e5668", "#4f9470", "#b37a00")
"""Four steps, such as lattices or numbers of clients: from dark to light."""

DARK = {
    **{look.colour.lower(): look.dark.lower() for look in LOOKS.values()},
    **dict(zip(ORDERED, ("#c942e2", "#6f929f", "#7ad7b6", "#c8cc59"), strict=True)),
    INK: "#e6e8ee",
    GREY: "#a9adb8",
    FAINT: "#4b505b",
    PAGE: "#14171c",
}
"""The dark page's colour for each colour."""


def in_the_dark(drawing: str) -> str:
    """CSS that gives the colours in an SVG file of Matplotlib their dark ones on a dark page."""
    rules = [f"svg{{fill:{DARK[INK]}}}"]  # letters are black unsaid
    for part, colour in sorted(set(re.findall(r"(fill|stroke): (#[0-9a-f]{6})", drawing))):
        if colour in DARK:
            rules.append(f'[style*="{part}: {colour}"]{{{part}:{DARK[colour]}!important}}')
    return f"@media (prefers-color-scheme:dark){{{''.join(rules)}}}"


def look_of(label: str) -> Look:
    """The look of the scheme that a label begins with, such as ``"jopeq, ε=4, R=2"``.

    >>> look_of("response, ε = 4 per entry") == LOOKS["response"]
    True
    """
    name = label.split(",")[0].strip()
    try:
        return LOOKS["none" if name == "raw" else name]
    except KeyError:
        raise ValueError(
            f"label must begin with one of {', '.join(LOOKS)} and a comma, got {label!r}"
        ) from None
