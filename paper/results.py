"""Make docs/paper.md: check the kept results against the claims, draw them, and fill them in."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pandas as pd

from jopeq.errors import DataError
from jopeq.files import atomic
from paper import attack_tables, attacks, cells, cifar, claims, figures, mnist, snr, theory
from paper.kept import SECTIONS, Results, read_results, without_added
from paper.pages import environment


def run(folder: Path, page: Path) -> list[str]:
    """Write the page and its figures; return the sections left out because runs are missing.

    Nothing is written unless every claim of the page holds.
    """
    results, (theorems, pictures) = read_results(folder), theory.section(folder)
    if not (results.sections or theorems):
        raise DataError(f"{folder} holds no whole table or figure: name the folder of the runs")
    claims.check(results)
    figures_folder = page.parent / "figures"
    draw(results, figures_folder)
    for name, content in pictures.items():
        (figures_folder / name).write_bytes(content)
    with atomic(page) as file:
        file.write(paper_page(results, theorems).encode())
    left_out = [name for name in SECTIONS if name not in results.sections]
    return left_out if theorems else [*left_out, "theory"]


def draw(results: Results, folder: Path) -> None:
    """The figures of the sections that can be shown."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("fig2", "fig3", "table2", "fig4", "fig5"):
        if name in results.sections:
            getattr(figures, f"save_{name}")(getattr(results, name), folder / f"{name}.svg")
    if "fig6" in results.sections:
        for method in cells.ATTACKERS:
            path = folder / f"fig6_{method}.svg"
            figures.save_fig6(results.fig6, results.pictures, method, path)


def paper_page(results: Results, theorems: str) -> str:
    """The text of the page, of the sections that can be shown."""
    modules = (mnist, cifar, snr, cells, attacks, attack_tables)
    return (
        environment()
        .get_template("paper.md.j2")
        .render(
            results=results,
            own=without_added(results),
            theorems=theorems,
            attacked=pd.concat([results.fig6, results.fig4, results.fig5]),
            recovered=partial(attack_tables.recovered, results.fig6),
            torch=_torch,
            machines=_machines,
            **{module.__name__.removeprefix("paper."): module for module in modules},
        )
    )


def _machines(runs: pd.DataFrame) -> str:
    """The machines, versions and commits of some runs."""
    machines, commits = (" and ".join(sorted(set(runs[name]))) for name in ("machine", "commit"))
    return f"{machines}, PyTorch {_torch(runs)}, commit {commits}"


def _torch(runs: pd.DataFrame) -> str:
    """The versions of PyTorch that some runs were made with."""
    return " and ".join(sorted({version.split("+")[0] for version in runs.torch}))
