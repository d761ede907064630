"""docs/results.md from its template: prose is written there, numbers and tables are filled in."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import jinja2
import pandas as pd

from jopeq.errors import DataError
from jopeq.whole_files import atomic
from paper import attack_tables, attacks, cells, cifar, frames, mnist, snr
from paper.claims import check
from paper.kept import Results, draw, read_results

TEMPLATES = Path(__file__).parent / "pages"


def environment() -> jinja2.Environment:
    """Templates of Markdown, with the filters that write numbers and tables."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown, from our own results
    )
    for one in (frames.markdown, frames.number, frames.plain, frames.short, frames.signed):
        made.filters[one.__name__] = one
    made.filters["minus"] = lambda *given: frames.number(*given).replace("-", "−")
    made.filters["torch"] = _torch
    return made


def _torch(frame: pd.DataFrame) -> str:
    """The versions of PyTorch that some runs were made with."""
    return " and ".join(sorted({version.split("+")[0] for version in frame.torch}))


def results_page(results: Results, figures: str = "figures") -> str:
    """The text of docs/results.md, of the sections that can be shown."""
    shown = [getattr(results, name) for name in ("fig6", "fig4", "fig5")]
    modules = (mnist, cifar, snr, cells, attacks, attack_tables)
    context = {
        "results": results,
        "figures": figures,
        "attacked": pd.concat(shown),
        "recovered": partial(attack_tables.recovered, results.fig6),
        **{module.__name__.removeprefix("paper."): module for module in modules},
    }
    return environment().get_template("results.md.j2").render(context)


def write_results_page(folder: Path, page: Path) -> list[str]:
    """Check the claims of the prose, draw the figures, write the page; the sections left out."""
    results = read_results(folder)
    if not results.sections:
        raise DataError(f"{folder} holds no whole table or figure: name the folder of the runs")
    check(results)
    page.parent.mkdir(parents=True, exist_ok=True)
    draw(results, page.parent / "figures")
    with atomic(page) as file:
        file.write(results_page(results).encode())
    return results.missing
