"""The folders of ``jopeq train --out`` in a report: what the runs came to, and every round."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from jopeq.experiments.drawing import new_panels
from jopeq.experiments.report_html import Section, Table
from jopeq.experiments.report_records import Configurations, Records, kept_records
from jopeq.experiments.report_sections import drawn
from jopeq.experiments.report_tables import Source, record_tables
from jopeq.federated.record import CONFIG, PANELS, ROUNDS, SUMMARY

OF_TRAINING = (CONFIG, SUMMARY)
_COLUMNS = ("scheme", "model", "data", "seed", "rounds")  # of the table, not among the settings


@dataclass(frozen=True)
class Training:
    """One folder: the configuration, the rounds, and how it ended; None where it did not."""

    name: str
    config: dict[str, Any]
    rounds: Records
    summary: dict[str, Any] | None

    @property
    def title(self) -> str:
        return f"seed {self.config['seed']}"

    @property
    def settings(self) -> dict[str, Any]:
        return {name: self.config[name] for name in self.config if name not in _COLUMNS}


def trainings(results: Path, problems: list[str]) -> list[Training]:
    """Those of a folder and of the ``seed-…`` folders in it."""
    inner = [path for path in results.glob("seed-*") if path.is_dir()]
    inner.sort(key=lambda path: [int(part) for part in re.findall(r"\d+", path.name)])
    is_one = all((results / name).exists() for name in (CONFIG, ROUNDS))
    found = [_training(results, "", problems)] if is_one else []
    found += [_training(path, f"{path.name}/", problems) for path in inner]
    return [training for training in found if training is not None]


def _training(folder: Path, name: str, problems: list[str]) -> Training | None:
    try:
        config = _object(folder / CONFIG)
    except (OSError, ValueError) as error:
        problems.append(f"{name}{CONFIG}: cannot be read ({error})")
        return None
    missing = [column for column in _COLUMNS if column not in config]
    if missing:
        problems.append(f"{name}{CONFIG}: lacks {', '.join(missing)}")
        return None
    rounds = kept_records(folder / ROUNDS)
    problems += [f"{name}{problem}" for problem in rounds.problems]
    if not rounds.records:
        return None
    try:
        summary: dict[str, Any] | None = _object(folder / SUMMARY)
    except (OSError, ValueError) as error:
        problems.append(f"{name}{SUMMARY}: cannot be read ({error}): the run has not ended")
        summary = None
    if summary is not None and summary.get("rounds") != len(rounds.records):
        problems.append(f"{name}{SUMMARY}: it is not of these {len(rounds.records)} rounds")
        summary = None
    return Training(name, config, rounds, summary)


def _object(path: Path) -> dict[str, Any]:
    found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ValueError(f"not an object but {found!r:.40}")
    return found


def training_section(
    found: Sequence[Training], configurations: Configurations, problems: list[str]
) -> Section:
    """Means over seeds of the runs that ended, and the rounds of all."""
    from jopeq.experiments.report_runs import EXPLAINED, run_tables, seed_groups

    ended = [_run(one, one.summary) for one in found if one.summary is not None]
    tables: list[Table] = []
    if ended:
        groups = seed_groups(ended, CONFIG, problems)
        tables += run_tables(groups, CONFIG, configurations)
    for one in found:
        source = Source(f"{one.name}{CONFIG}", one.settings, configurations)
        caption = f"Rounds, {one.title}"
        rounds = record_tables(one.rounds.records, source, caption)
        tables += [Table(t.headings, t.rows, t.caption, is_folded=True) for t in rounds]
    return Section(
        name="training",
        title="Training",
        text=EXPLAINED,
        figures=drawn(partial(_save, found), "training", "Along the rounds", problems),
        tables=tables,
    )


def _run(training: Training, summary: dict[str, Any]) -> Any:
    """As ``jopeq reproduce`` would have kept it."""
    from jopeq.federated.runs import Run, measured

    config, history = training.config, training.rounds.records
    accuracy = summary["test_accuracy"]
    validation = [metrics["validation_accuracy"] for metrics in history]
    return Run(
        label=json.loads(config["scheme"])[0],
        **{name: config[name] for name in _COLUMNS},
        test_accuracy=math.nan if accuracy is None else accuracy,
        best_round=summary["best_round"],
        validation=[value for value in validation if value is not None],
        **measured(history),
        settings=training.settings,
        diverged=summary.get("diverged"),
    )


def _save(found: Sequence[Training], path: Path) -> None:
    """A line for each run."""
    from matplotlib.ticker import MaxNLocator

    figure, panels = new_panels(len(PANELS), (12.0, 3.8))
    for panel, (name, title) in zip(panels, PANELS.items(), strict=True):
        for index, one in enumerate(found):
            rows = [row for row in one.rounds.records if row.get(name) is not None]
            rounds, values = [row["round"] for row in rows], [row[name] for row in rows]
            mark = "." if len(rows) < 30 else ""
            panel.plot(rounds, values, color=f"C{index}", marker=mark, label=one.title)
        panel.set(xlabel="round", title=title)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.grid(alpha=0.3)
    if len(found) > 1:
        panels[0].legend(fontsize=8)
    figure.savefig(path)
