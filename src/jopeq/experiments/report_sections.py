"""The sections of a report on attacks and on whatever else a file holds, and what all share."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from jopeq.experiments.inline_svg import inline_svg
from jopeq.experiments.report_html import Figure, Section, Table
from jopeq.experiments.report_records import Configurations, Records
from jopeq.experiments.report_tables import Source, record_tables

TITLES = {  # in the order of the page
    "demo": "The demonstration",
    "table1": "Table I: MNIST, three models",
    "fig2": "Figure 2: SNR against rate",
    "fig3": "Figure 3: convergence",
    "table2": "Table II: CIFAR-10",
    "table2_snr": "Table II: SNR, convention by convention",
    "attacks": "Figures 4 to 6: attacks by gradient inversion",
}


def scheme_text(spec: str) -> str:
    """A specification with room to break lines.

    >>> scheme_text('["jopeq",{"epsilon":4.0,"rate":1.0}]')
    'jopeq epsilon=4.0 rate=1.0'
    """
    name, parameters = json.loads(spec)
    return " ".join([name, *(f"{key}={value}" for key, value in parameters.items())])


def drawn(save: Callable[[Path], None], name: str, title: str, problems: list[str]) -> list[Figure]:
    """The figure; runs that are there in part may not make one."""
    try:
        return [Figure(inline_svg(save, f"figure-{name}", title), title)]
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        problems.append(f"figure {name}: cannot be drawn ({type(error).__name__}: {error})")
        return []


def attack_section(file: Records, configurations: Configurations, problems: list[str]) -> Section:
    """Gradient inversions: mean SSIM and MSE of each scheme, attack and epoch."""
    from jopeq.experiments import attack_report
    from jopeq.experiments.attack_cells import fig5_cells
    from jopeq.experiments.attack_figures import PICTURES_FILE
    from jopeq.experiments.attack_runs import Attacked

    found = [Attacked(**record) for record in file.records]
    attacked = list({(one.key, one.images): one for one in found}.values())
    headings = (
        *("label", "attack", "epoch", "variant", "images", "SSIM", "MSE", "SSIM above ½, %"),
        *("labels right", "evaluations", "scheme", "configuration"),
    )
    rows = [
        (
            *(one.label, one.method, one.epoch, one.variant, one.images),
            *(statistics.fmean(one.ssim), statistics.fmean(one.mse)),
            100 * attack_report.recovered(one).value,
            *(one.labels_right, one.evaluations, scheme_text(one.spec)),
            configurations.link(file.name, {"iterations": one.iterations, **one.settings}),
        )
        for one in attacked
    ]
    stem, slug = file.path.stem, file.slug
    figures: list[Figure] = []
    if any(one.epoch > 0 for one in attacked):
        save = partial(attack_report.save_fig4, attacked)
        figures += drawn(save, f"{slug}-fig4", "Figure 4: SSIM along training", problems)
    if attack_report.found_for(fig5_cells(), attacked):
        save = partial(attack_report.save_fig5, attacked)
        figures += drawn(save, f"{slug}-fig5", "Figure 5: MSE against 2/ε", problems)
    figures += _grids(attacked, file.path.with_name(PICTURES_FILE), slug, problems)
    return Section(
        name=slug,
        title=TITLES.get(stem, stem),
        text="SSIM and MSE: means over images. What was attacked again is shown as it was attacked "
        "last.",
        figures=figures,
        tables=[Table(headings, rows, "Every scheme, attack and epoch")],
    )


def _grids(attacked: Sequence[Any], kept: Path, slug: str, problems: list[str]) -> list[Figure]:
    """Originals and reconstructions, one grid for each attacker."""
    from jopeq.errors import DataError
    from jopeq.experiments.attack_report import ATTACKERS, save_fig6
    from jopeq.experiments.attack_runs import ORIGINALS, read_pictures

    try:
        pictures = read_pictures(kept)
    except DataError as error:
        problems.append(str(error))
        return []
    figures: list[Figure] = []
    if ORIGINALS not in pictures:
        return figures
    for method, title in ATTACKERS.items():
        if f" {method}" in " ".join(pictures):

            def save(path: Path, method: str = method) -> None:
                if not save_fig6(pictures[ORIGINALS], attacked, pictures, method, path):
                    raise ValueError("no cell of it was kept")

            figures += drawn(save, f"{slug}-fig6-{method}", f"Figure 6: {title}", problems)
    return figures


def records_section(file: Records, configurations: Configurations) -> Section:
    """Any other file, as it is."""
    stem = file.path.stem
    source = Source(file.name, {}, configurations)
    return Section(
        name=file.slug,
        title=TITLES.get(stem, stem),
        tables=record_tables(file.records, source, "As kept"),
    )
