"""Training runs in a report: means over seeds, and every run."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

from jopeq.experiments.report_html import Cell, Figure, Link, Section, Table, Value
from jopeq.experiments.report_records import Configurations, Records
from jopeq.experiments.report_sections import TITLES, drawn, scheme_text
from jopeq.federated.config import TrainConfig
from jopeq.federated.runs import Run, decibels, over_seeds
from jopeq.versions import NAMES

EXPLAINED = (
    "Test accuracy of the best validation round, mean ± standard deviation over seeds; SNR: "
    "20·log10 of the mean of var(h)/var(h − h̃); bits, bytes and overload: means over seeds. ε: per "
    "sample, and of all samples and rounds of a client, against the server; where seeds differ, "
    "the largest."
)
_HEADINGS = (
    *("label", "model", "data", "rounds", "seeds", "test accuracy, %", "SNR, dB"),
    *("bits per parameter", "bytes per client and round", "overload, %", "ε asked", "ε proven"),
    *("ε of a client", "lr", "scheme", "configuration"),
)
_RUN_HEADINGS = (
    *("label", "model", "data", "rounds", "seed", "test accuracy, %", "best round"),
    *("SNR, dB", "diverged", "lr", "configuration"),
)
_COMPUTED_BY = (*NAMES, "device")  # seeds that differ in these are seeds of one setting
_DEFAULTS = {field.name: field.default for field in fields(TrainConfig)}


def runs_section(
    file: Records,
    files: Sequence[Records],
    configurations: Configurations,
    problems: list[str],
) -> Section:
    """The runs of a file, and the figures that are drawn from them."""
    groups = seed_groups((Run(**record) for record in file.records), file.name, problems)
    runs = [run for group in groups for run in group]
    stem = file.path.stem
    return Section(
        name=file.slug,
        title=TITLES.get(stem, stem),
        text=EXPLAINED,
        figures=_figures(stem, runs, files, problems),
        tables=run_tables(groups, file.name, configurations),
    )


def seed_groups(runs: Iterable[Run], file: str, problems: list[str]) -> list[list[Run]]:
    """Runs that differ in nothing but the seed and what computed them.

    Of a seed that is there more than once the last run counts, and that is a problem.
    """
    groups: dict[Any, dict[int, Run]] = {}
    again: dict[str, None] = {}
    for run in runs:
        key = (run.label, run.model, run.data, run.rounds, run.scheme, _asked(run.settings))
        group = groups.setdefault(key, {})
        if run.seed in group:
            again[f"{run.label}, {run.model}, {run.rounds} rounds, seed {run.seed}"] = None
        group[run.seed] = run
    if again:
        first, *others = again
        more = f" and {len(others)} more" if others else ""
        problems.append(f"{file}: more than one run of {first}{more}: only the last one counts")
    return [list(group.values()) for group in groups.values()]


def run_tables(
    groups: Sequence[Sequence[Run]], file: str, configurations: Configurations
) -> list[Table]:
    """Means over the seeds of each group, and all runs."""
    rows = [
        _row(group, configurations.link(file, _together([run.settings for run in group])))
        for group in groups
    ]
    each = [
        (
            *(run.label, run.model, run.data, run.rounds, run.seed, _accuracy([run])),
            *(run.best_round, _decibels([run]), run.diverged or "", run.settings.get("lr")),
            configurations.link(file, run.settings),
        )
        for group in groups
        for run in group
    ]
    return [
        Table(_HEADINGS, rows, "Means over seeds"),
        Table(_RUN_HEADINGS, each, "All runs", is_folded=True),
    ]


def _asked(settings: Mapping[str, Any]) -> str:
    """The settings without what computed the run, and without what is as it would be unsaid.

    Runs from before a setting was invented do not tell it.
    """
    asked = {
        name: value
        for name, value in settings.items()
        if name not in _COMPUTED_BY and (name not in _DEFAULTS or value != _DEFAULTS[name])
    }
    return json.dumps(asked, sort_keys=True)


def _together(settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The settings of several runs; where they differ, all that were recorded."""
    names = dict.fromkeys(name for one in settings for name in one)
    together = {}
    for name in names:
        values = [json.dumps(one[name]) if name in one else None for one in settings]
        if len(set(values)) == 1:
            together[name] = settings[0][name]
        else:
            texts = ["not recorded" if v is None else v.strip('"') for v in dict.fromkeys(values)]
            together[name] = " or ".join(texts)
    return together


def _row(group: Sequence[Run], link: Link) -> Sequence[Cell]:
    first = group[0]
    return (
        *(first.label, first.model, first.data, first.rounds, len(group)),
        _accuracy(group),
        _decibels(group),
        statistics.fmean(run.bits_per_parameter for run in group),
        statistics.fmean(run.bytes_per_client for run in group),
        100 * statistics.fmean(run.overload_rate for run in group),
        first.nominal,
        _largest([run.epsilon for run in group]),
        _largest([run.epsilon_client for run in group]),
        first.settings.get("lr"),
        *(scheme_text(first.scheme), link),
    )


def _accuracy(group: Sequence[Run]) -> Value:
    """In percent; a run without a test set has none."""
    accuracies = [run.test_accuracy for run in group]
    if any(map(math.isnan, accuracies)):
        return Value("–", None)
    cell = over_seeds(accuracies)
    return Value(str(cell), 100 * cell.mean)


def _largest(epsilons: Sequence[float | None]) -> Cell:
    """None: no guarantee."""
    found = [epsilon for epsilon in epsilons if epsilon is not None]
    return max(found) if len(found) == len(epsilons) else Value("none", math.inf)


def _decibels(runs: Sequence[Run]) -> Value:
    found = decibels(runs)
    return Value("∞", math.inf) if found is None else Value(f"{found:.2f}", found)


def _figures(
    stem: str, runs: Sequence[Run], files: Sequence[Records], problems: list[str]
) -> list[Figure]:
    """The figures of the results page that these runs are for."""
    from jopeq.experiments import cifar_report, demo, mnist, mnist_report

    if stem == "fig2":
        shown = [run for run in runs if run.rounds == mnist.FIG2_ROUNDS]
        return drawn(partial(mnist_report.save_fig2, shown), stem, TITLES[stem], problems)
    if stem == "fig3":
        others = [file for file in files if file.name == "table1.jsonl"]
        both = [Run(**record) for file in others for record in file.records] + list(runs)
        shown = mnist_report.fig3_runs(both)
        return drawn(partial(mnist_report.save_fig3, shown), stem, TITLES[stem], problems)
    if stem == "table2":
        shown = cifar_report.shown(list(runs))
        return drawn(partial(cifar_report.save_table2, shown), stem, TITLES[stem], problems)
    if stem == "demo":
        return drawn(partial(demo.save_demo, runs), stem, TITLES[stem], problems)
    return []
