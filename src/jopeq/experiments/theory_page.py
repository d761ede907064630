"""docs/theory.md, written from results/theory.json: numbers and verdicts follow from that file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from jopeq.errors import DataError
from jopeq.experiments.page_words import reflow
from jopeq.experiments.theory_figures import save_figures
from jopeq.experiments.theory_page_aggregation import aggregation_section
from jopeq.experiments.theory_page_convergence import convergence_section
from jopeq.experiments.theory_page_dither import dither_section
from jopeq.experiments.theory_page_noise_share import noise_share_section
from jopeq.experiments.theory_page_parts import Part, Section
from jopeq.experiments.theory_page_total_error import total_error_section

_HEAD = """# The theorems, checked by experiment

Each theorem of the paper in plain words, what was computed or measured, and what was found.
`jopeq reproduce theory` computes what `results/theory.json` lacks (a few minutes on two cores),
draws the figures and writes this page from that file. Privacy is per sample throughout, as in the
paper; [guarantees](guarantees.md) says what is proven of each scheme.

| theorem | says | found |
|---|---|---|
{summary}
"""


def write_theory_page(parts: Mapping[str, Part], page: Path, figures: Path) -> None:
    """Write the page and, beside it, its figures; of spoilt results nothing is written."""
    text = theory_page(parts, figures.relative_to(page.parent))
    save_figures(parts, figures)
    page.write_text(text, encoding="utf-8")


def theory_page(parts: Mapping[str, Part], figures: Path) -> str:
    """The text of the page."""
    sections: Sequence[tuple[str, Callable[[Part, str], Section]]] = (
        ("dither", dither_section),
        ("total_error", total_error_section),
        ("noise_share", noise_share_section),
        ("aggregation", aggregation_section),
        ("convergence", convergence_section),
    )
    texts, rows = [], []
    for name, section in sections:
        if name not in parts:
            raise DataError(f"theory.json has no part {name!r}: run `jopeq reproduce theory`")
        text, summary = section(parts[name], figures.as_posix())
        texts.append(text)
        rows.append("| " + " | ".join(summary) + " |")
    return reflow(_HEAD.format(summary="\n".join(rows)) + "".join(texts))
