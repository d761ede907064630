"""The sections of a report: one for each results file."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from jopeq.experiments.drawing import new_figure
from jopeq.experiments.inline_svg import inline_svg
from jopeq.experiments.report_html import Cell, Figure, Link, Section, Table, Value
from jopeq.experiments.report_records import Configurations, Records

TITLES = {  # in the order of the page
    "demo": "The demonstration",
    "table1": "Table I: MNIST, three models",
    "fig2": "Figure 2: SNR against rate",
    "fig3": "Figure 3: convergence",
    "table2": "Table II: CIFAR-10",
    "table2_snr": "Table II: SNR, convention by convention",
    "attacks": "Figures 4 to 6: attacks by gradient inversion",
}
_RUN_HEADINGS = (
    *("label", "model", "data", "rounds", "seeds", "test accuracy, %", "SNR, dB"),
    *("bits per parameter", "bytes per client and round", "overload, %", "ε asked", "ε proven"),
    *("ε of a client", "scheme", "configuration"),
)


def runs_section(
    file: Records,
    files: Sequence[Records],
    configurations: Configurations,
    problems: list[str],
) -> Section:
    """Training runs: means over seeds, all runs, and the figures that are drawn from them."""
    from jopeq.experiments.runs import Run

    runs = [Run(**record) for record in file.records]
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        settings = json.dumps(run.settings, sort_keys=True)
        key = (run.label, run.model, run.data, run.rounds, run.scheme, settings)
        groups.setdefault(key, []).append(run)
    rows = [
        _run_row(group, configurations.link(file.name, group[0].settings))
        for group in groups.values()
    ]
    each = [
        (
            *(run.label, run.model, run.data, run.rounds, run.seed, 100 * run.test_accuracy),
            *(run.best_round, _decibels([run]), run.diverged or ""),
            configurations.link(file.name, run.settings),
        )
        for run in runs
    ]
    headings = (
        *("label", "model", "data", "rounds", "seed", "test accuracy, %", "best round"),
        *("SNR, dB", "diverged", "configuration"),
    )
    stem = Path(file.name).stem
    return Section(
        name=stem,
        title=TITLES.get(stem, stem),
        text="Test accuracy of the best validation round, mean ± standard deviation over seeds. "
        "SNR: 20·log10 of the mean of var(h)/var(h − h̃). ε: per sample, and of all samples and "
        "rounds of a client, against the server.",
        figures=_run_figures(stem, runs, files, problems),
        tables=[
            Table(_RUN_HEADINGS, rows, "Means over seeds"),
            Table(headings, each, "All runs", is_folded=True),
        ],
    )


def _run_row(group: Sequence[Any], link: Link) -> Sequence[Cell]:
    first = group[0]
    accuracies = [100 * run.test_accuracy for run in group]
    mean = statistics.fmean(accuracies)
    deviation = f" ± {statistics.stdev(accuracies):.2f}" if len(group) > 1 else ""
    return (
        *(first.label, first.model, first.data, first.rounds, len(group)),
        Value(f"{mean:.2f}{deviation}", mean),
        _decibels(group),
        *(first.bits_per_parameter, first.bytes_per_client, 100 * first.overload_rate),
        first.nominal,
        Value("none", math.inf) if first.epsilon is None else first.epsilon,
        Value("none", math.inf) if first.epsilon_client is None else first.epsilon_client,
        *(_scheme_text(first.scheme), link),
    )


def _scheme_text(spec: str) -> str:
    """A specification with room to break lines.

    >>> _scheme_text('["jopeq",{"epsilon":4.0,"rate":1.0}]')
    'jopeq epsilon=4.0 rate=1.0'
    """
    name, parameters = json.loads(spec)
    return " ".join([name, *(f"{key}={value}" for key, value in parameters.items())])


def _decibels(runs: Sequence[Any]) -> Value:
    from jopeq.experiments.over_seeds import decibels

    found = decibels(runs)
    return Value("∞", math.inf) if found is None else Value(f"{found:.2f}", found)


def _run_figures(
    stem: str, runs: Sequence[Any], files: Sequence[Records], problems: list[str]
) -> list[Figure]:
    """The figures of the results page that these runs are for."""
    from jopeq.experiments import cifar_report, demo, mnist, mnist_report
    from jopeq.experiments.runs import Run

    if stem == "fig2":
        shown = [run for run in runs if run.rounds == mnist.FIG2_ROUNDS]
        return _drawn(partial(mnist_report.save_fig2, shown), stem, TITLES[stem], problems)
    if stem == "fig3":
        others = [file for file in files if file.name == "table1.jsonl"]
        both = [Run(**record) for file in others for record in file.records] + list(runs)
        shown = mnist_report.fig3_runs(both)
        return _drawn(partial(mnist_report.save_fig3, shown), stem, TITLES[stem], problems)
    if stem == "table2":
        shown = cifar_report.shown(runs)
        return _drawn(partial(cifar_report.save_table2, shown), stem, TITLES[stem], problems)
    if stem == "demo":
        return _drawn(partial(demo.save_demo, runs), stem, TITLES[stem], problems)
    return []


def _drawn(
    save: Callable[[Path], None], name: str, title: str, problems: list[str]
) -> list[Figure]:
    """The figure; runs that are there in part may not make one."""
    try:
        return [Figure(inline_svg(save, name, title), title)]
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        problems.append(f"figure {name}: cannot be drawn ({type(error).__name__}: {error})")
        return []


def attack_section(file: Records, configurations: Configurations, problems: list[str]) -> Section:
    """Gradient inversions: mean SSIM and MSE of each scheme, attack and epoch."""
    from jopeq.experiments import attack_report
    from jopeq.experiments.attack_cells import fig5_cells
    from jopeq.experiments.attack_figures import PICTURES_FILE
    from jopeq.experiments.attack_runs import Attacked

    attacked = [Attacked(**record) for record in file.records]
    headings = (
        *("label", "attack", "epoch", "variant", "images", "SSIM", "MSE", "SSIM above ½, %"),
        *("labels right", "evaluations", "scheme", "configuration"),
    )
    rows = [
        (
            *(one.label, one.method, one.epoch, one.variant, one.images),
            *(statistics.fmean(one.ssim), statistics.median(one.mse)),
            100 * attack_report.recovered(one).value,
            *(one.labels_right, one.evaluations, _scheme_text(one.spec)),
            configurations.link(file.name, {"iterations": one.iterations, **one.settings}),
        )
        for one in attacked
    ]
    stem = Path(file.name).stem
    figures: list[Figure] = []
    if any(one.epoch > 0 for one in attacked):
        save = partial(attack_report.save_fig4, attacked)
        figures += _drawn(save, f"{stem}-fig4", "Figure 4: SSIM along training", problems)
    if attack_report.found_for(fig5_cells(), attacked):
        save = partial(attack_report.save_fig5, attacked)
        figures += _drawn(save, f"{stem}-fig5", "Figure 5: MSE against 2/ε", problems)
    figures += _grids(attacked, file.path.with_name(PICTURES_FILE), problems)
    return Section(
        name=stem,
        title=TITLES.get(stem, stem),
        text="SSIM: mean over images; MSE: median over images.",
        figures=figures,
        tables=[Table(headings, rows, "Every scheme, attack and epoch")],
    )


def _grids(attacked: Sequence[Any], kept: Path, problems: list[str]) -> list[Figure]:
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

            figures += _drawn(save, f"fig6-{method}", f"Figure 6: {title}", problems)
    return figures


def records_section(file: Records, configurations: Configurations) -> Section:
    """Any other file: a column for each field that holds words or numbers."""
    stem = Path(file.name).stem
    return Section(
        name=stem,
        title=TITLES.get(stem, stem),
        tables=[_plain_table(file.records, file.name, configurations, {}, "As kept")],
    )


def theory_section(
    parts: Mapping[str, Any], configurations: Configurations, problems: list[str]
) -> Section:
    """The theorems: all figures, and every list of numbers as a table."""
    from jopeq.experiments import theory_figures

    if not isinstance(parts, dict) or not all(isinstance(part, dict) for part in parts.values()):
        raise ValueError("it holds no parts: delete it and run `jopeq reproduce theory`")
    figures: list[Figure] = []
    for name, (part, draw, size) in theory_figures.FIGURES.items():
        if part not in parts:
            problems.append(f"theory.json: {name} needs the part {part!r}, which is not there")
            continue
        save = partial(_save_theory, draw, parts[part], size)
        title = name.replace("-", ": ", 1).replace("-", " ")
        figures += _drawn(save, name, title, problems)
    tables = []
    for part, content in parts.items():
        single = {key: value for key, value in content.items() if _is_single(value)}
        for key, value in content.items():
            if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
                effort, made_with = content.get("effort", {}), content.get("versions", {})
                settings = {"part": part, **effort, **single, **made_with}
                caption = f"{part}: {key}"
                tables.append(_plain_table(value, "theory.json", configurations, settings, caption))
    return Section(
        "theory",
        "The theorems",
        text="Numbers as kept; docs/theory.md says what each of them means.",
        figures=figures,
        tables=tables,
    )


def _save_theory(
    draw: Callable[[Any, Any], None], part: Any, size: tuple[float, float], path: Path
) -> None:
    figure = new_figure(size)
    draw(part, figure)
    figure.savefig(path)


def _plain_table(
    records: Iterable[Mapping[str, Any]],
    file: str,
    configurations: Configurations,
    settings: Mapping[str, Any],
    caption: str,
) -> Table:
    rows = list(records)
    names = dict.fromkeys(
        key for row in rows for key, value in row.items() if value is None or _is_single(value)
    )
    cells = []
    for row in rows:
        own = row.get("settings")
        link = configurations.link(file, own if isinstance(own, dict) else settings)
        shown = [value if _is_single(value := row.get(name)) else None for name in names]
        cells.append((*shown, link))
    return Table((*names, "configuration"), cells, caption)


def _is_single(value: Any) -> bool:
    return isinstance(value, (str, int, float))
