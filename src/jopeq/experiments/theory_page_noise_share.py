"""The section of docs/theory.md on Theorem III.3."""

from __future__ import annotations

from typing import NamedTuple

from jopeq.experiments.page_words import percent, table
from jopeq.experiments.theory import DIGITS
from jopeq.experiments.theory_page_parts import Part, Section, reading
from jopeq.privacy.guarantee import places_up

_RATES = (1, 2, 3)  # whose edges of the region are told
_LITTLE = 0.1  # more than the ε asked for: what a user may put up with

_TEXT = """
## III.3: when quantization alone is private

**It says.** On Z, JoPEQ with noise of an infinitesimally small variance is ε-LDP when √24 ≤
γε/2^R.

**Computed.** The share 1 − (γε/2^R)²/24 of the error's variance that is left for the noise, and
the exact ε against the server (the supremum over inputs, dithers and letters of the real
channel), for γ = 2R + 1/ε and {least} to {most} letters.

![Noise share and exact ε over ε and R]({figures}/theory-noise-share.svg)

{table}

**Found.** The arithmetic is right: the dither's variance reaches the Laplace law's exactly where
the theorem says, {edges}. The conclusion is not. Equal variance does not make a bounded error
private: to somebody who knows the dither a letter excludes every input beyond the edges of its
cell, so that in the region of the theorem ε = ∞ ({region}). Outside it, matched noise of scale b
has ε = 2/b, which is the ε asked for divided by the square root of the noise's share ({off}): twice
as much where a quarter of the variance is noise, and less than {little} more only where at least
{safe} is.
"""


class _Point(NamedTuple):
    """Of the map; ``factor`` is the exact ε over the ε asked for, None where it is infinite."""

    is_inside: bool
    share: float
    factor: float | None


@reading("noise_share")
def noise_share_section(part: Part, figures: str) -> Section:
    """Theorem III.3."""
    points = _points(part)
    lost, region = _region(points)
    inside_little = [p.share for p in points if p.factor is not None and p.factor < 1 + _LITTLE]
    rows = [
        (
            f"{row['epsilon']:g}",
            f"{row['letters']}",
            f"{row['coarseness']:.2f}"
            + (" ≥ √24" if row["coarseness"] >= part["boundary"] else ""),
            percent(row["share"]) if row["share"] else "none",
            "∞" if row["exact"] is None else places_up(row["exact"]),
        )
        for row in part["examples"]
    ]
    edges = [
        f"at R = {rate} from {(2**rate * part['boundary'] - 1) / (2 * rate):.2f}" for rate in _RATES
    ]
    edges[0] = edges[0].replace("from ", "from ε = ") + " on"
    text = _TEXT.format(
        figures=figures,
        least=min(part["letters"]),
        most=max(part["letters"]),
        table=table(("ε asked for", "letters 2^R", "γε/2^R", "noise's share", "exact ε"), rows),
        edges=", ".join(edges),
        region=region,
        off=_law(points),
        little=percent(_LITTLE),
        safe=percent(min(inside_little, default=1.0)),
    )
    finding = f"the variances are as stated; the ε against the server is ∞ {lost}"
    return text, ["III.3", "no noise is needed where √24 ≤ γε/2^R", finding]


def _points(part: Part) -> list[_Point]:
    lines = zip(part["coarseness"], part["share"], part["exact"], strict=True)
    return [
        _Point(coarse >= part["boundary"], share, None if exact is None else exact / epsilon)
        for line in lines
        for coarse, share, exact, epsilon in zip(*line, part["epsilons"], strict=True)
    ]


def _region(points: list[_Point]) -> tuple[str, str]:
    """Where in the region of the theorem ε is infinite: for the summary, and as it was counted."""
    inside = [point.factor for point in points if point.is_inside]
    infinite = inside.count(None)
    if infinite == len(inside):
        return "in the whole region", f"at all {len(inside):,} points of the map there"
    counted = f"at {infinite:,} of {len(inside):,} points of the map there"
    return counted, counted


def _law(points: list[_Point]) -> str:
    """How well the exact ε is told by the noise's share outside the region."""
    factors = [(point.share, point.factor) for point in points if not point.is_inside]
    finite = [(share, factor) for share, factor in factors if factor is not None]
    off = max(abs(factor * share**0.5 - 1) for share, factor in finite)
    agreement = f"the {DIGITS} digits kept" if off < 10 ** (1 - DIGITS) else percent(off)
    text = f"on the whole map to {agreement}"
    lost = len(factors) - len(finite)
    return f"{text}, but for {lost:,} points where ε = ∞" if lost else text
