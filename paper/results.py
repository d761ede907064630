"""The results behind docs/paper.md: read them, check its claims, draw its figures, fill it in."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from jopeq.errors import DataError
from jopeq.files import atomic
from jopeq.versions import versions
from jopeq_lab.attacks.similarity import RECOVERED
from paper import attacks, cells, cifar, claims, figures, mnist
from paper.attacks import ATTACKS_FILE, PICTURES_FILE, read_attacks, read_pictures
from paper.runs import Job, Run, job_key, read_records, run_key
from paper.theorems import claims as theorem_claims
from paper.theorems.aggregation import aggregation_part
from paper.theorems.convergence import TAIL, convergence_part, weights
from paper.theorems.dither import dither_part
from paper.theorems.figures import SIGMAS, drawn
from paper.theorems.mechanisms import mechanisms_part
from paper.theorems.noise_share import noise_share_part
from paper.theorems.setting import Effort
from paper.theorems.total_error import resolution, total_error_part
from paper.words import environment, listed, percent, short, signed


@dataclass(frozen=True)
class Results:
    """One frame per section; empty if not all of its runs are kept."""

    table1: pd.DataFrame
    table1_code: pd.DataFrame
    fig2: pd.DataFrame
    fig3: pd.DataFrame
    table2: pd.DataFrame
    snr: pd.DataFrame
    fig4: pd.DataFrame
    repository: pd.DataFrame
    fig5: pd.DataFrame
    fine: pd.DataFrame
    fig6: pd.DataFrame
    pictures: dict[str, NDArray[np.uint8]]

    @property
    def sections(self) -> list[str]:
        """The names of those that can be shown."""
        return [name for name in SECTIONS if not getattr(self, name).empty]


def without_added(results: Results) -> Results:
    """The paper's rows and ours alone, which the prose is about."""
    frames = {name: getattr(results, name) for name in ("table1", "fig2", "fig3")}
    added = tuple(mnist.ADDED)
    own = {name: f[~f.label.str.startswith(added)] for name, f in frames.items() if len(f)}
    return replace(results, **own)


SECTIONS = tuple(field.name for field in fields(Results) if field.name != "pictures")


def read_results(folder: Path) -> Results:
    """Read everything that is kept in a folder."""
    table1, attacks = folder / "table1.jsonl", folder / ATTACKS_FILE
    return Results(
        table1=runs_of(mnist.own_jobs(count=1), table1),
        table1_code=runs_of(mnist.code_jobs(count=1), table1),
        fig2=runs_of(mnist.fig2_jobs(), folder / "fig2.jsonl"),
        fig3=runs_of(mnist.fig3_jobs(count=1), table1, folder / "fig3.jsonl"),
        table2=runs_of(cifar.jobs(count=1), folder / "table2.jsonl"),
        snr=frame_of(read_records(folder / cifar.SNR_FILE, cifar.Conventions)),
        fig4=attacks_of("fig4", attacks),
        repository=attacks_of("repository", attacks),
        fig5=attacks_of("fig5", attacks),
        fine=attacks_of("fine", attacks, cells.FEW),
        fig6=attacks_of("fig6", attacks),
        pictures=read_pictures(folder / PICTURES_FILE),
    )


def frame_of(records: Iterable[Any]) -> pd.DataFrame:
    """One row per record, with its settings as columns of their own."""
    frame = pd.DataFrame([vars(record) for record in records])
    if frame.empty:
        return frame
    settings = pd.DataFrame(frame.pop("settings").tolist(), index=frame.index)
    return frame.join(settings[settings.columns.difference(frame.columns, sort=False)])


def runs_of(jobs: Iterable[Job], *files: Path) -> pd.DataFrame:
    """The kept runs of some jobs, whatever their seeds, in order; empty if a job has none."""
    if not any(file.exists() for file in files):
        return pd.DataFrame()  # making the jobs' schemes takes a while
    found: dict[tuple[Any, ...], dict[int, Run]] = {job_key(job)[:-1]: {} for job in jobs}
    for run in (run for file in files for run in read_records(file, Run)):
        key = run_key(run)[:-1]
        if key in found:
            found[key].setdefault(run.seed, run)
    added = tuple(mnist.ADDED)  # may have runs for one table alone
    if not all(runs or key[0].startswith(added) for key, runs in found.items()):
        return pd.DataFrame()
    return frame_of(run for seeds in found.values() for _, run in sorted(seeds.items()))


def attacks_of(name: str, path: Path, images: int = cells.IMAGES) -> pd.DataFrame:
    """The kept attacks of a figure, in the order of its cells; empty if one is missing."""
    found = {one.key: one for one in read_attacks(path) if one.images == images}
    wanted = {cell.key: cell for cell in cells.figure_cells(name)} if found else {}
    if not found or not wanted.keys() <= found.keys():
        return pd.DataFrame()
    attacked = [found[key] for key in wanted]
    frame = frame_of(attacked)
    frame["label"] = [cell.label for cell in wanted.values()]
    frame["mean_ssim"] = frame.ssim.map(np.mean)
    frame["mean_mse"] = frame.mse.map(np.mean)
    is_found = [[loss is not None for loss in one.loss] for one in attacked]  # else never found
    is_close = [[ssim > RECOVERED for ssim in one.ssim] for one in attacked]
    frame["hits"] = (np.array(is_found) & np.array(is_close)).sum(axis=1)
    frame["final"] = [one.is_final(wanted[one.key].config().iterations) for one in attacked]
    return frame


# The theorems: ``results/theory.json`` holds their numbers, one part each

Parts = Mapping[str, Mapping[str, Any]]

PARTS: Mapping[str, Callable[[Effort], dict[str, Any]]] = {
    "dither": dither_part,
    "total_error": total_error_part,
    "noise_share": noise_share_part,
    "aggregation": aggregation_part,
    "convergence": convergence_part,
    "mechanisms": mechanisms_part,
}
DIGITS = 6
THEORY_FILE = "theory.json"


def theory_section(results: Path) -> tuple[str, dict[Path, bytes]]:
    """Render the text and its figures; empty if ``results`` has no numbers of the theorems.

    Raises unless every claim of the text holds and every figure can be drawn.
    """
    if not (results / THEORY_FILE).exists():
        return "", {}
    try:
        parts = read_theory(results / THEORY_FILE)
        return theory_text(parts), drawn(parts)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason = f"{THEORY_FILE} is not as it was kept ({type(error).__name__}: {error})"
        raise DataError(f"{reason}: delete it and run `python -m paper theory`") from error


def compute(path: Path, effort: Effort | None = None) -> dict[str, Any]:
    """Compute the parts that ``path`` lacks, or holds with another effort; returns all of them."""
    effort = effort or Effort()
    kept = read_theory(path) if path.exists() else {}
    used = json.loads(json.dumps(asdict(effort)))
    for name, part in PARTS.items():
        if kept.get(name, {}).get("effort") != used:
            about = {"effort": used, "versions": versions("numpy", "scipy")}
            kept[name] = {**about, **_rounded(part(effort))}
            _write(path, {part: kept[part] for part in PARTS if part in kept})
    return {name: kept[name] for name in PARTS}


def read_theory(path: Path) -> dict[str, Any]:
    """Read the numbers that ``compute`` kept."""
    return dict(json.loads(path.read_text(encoding="utf-8")))


def theory_text(parts: Parts) -> str:
    """The text; raises if the numbers do not support a sentence of it."""
    theorem_claims.check(parts)
    rows, start = parts["convergence"]["rows"], parts["convergence"]["from_optimum"]
    ends = {(r["problem"], r["split"], r["scheme"]): r["losses"][-1] for r in rows}
    template = environment().get_template("theory.md.j2")
    return template.render(
        **parts,
        listed=listed,
        percent=percent,
        short=short,
        signed=signed,
        claims=theorem_claims,
        line={(row["epsilon"], row["rate"]): row for row in parts["total_error"]["line"]},
        points=theorem_claims.map_points(parts["noise_share"]),
        resolution=resolution(parts["total_error"]["samples"]),
        digits=DIGITS,
        bar_sigmas=SIGMAS,
        tail=TAIL,
        squared_weights=float((weights("unequal") ** 2).sum()),
        costs=[end / ends[*at, "none"] for (*at, name), end in ends.items() if name == "jopeq"],
        over=max(m / b for m, b in zip(start["losses"], start["printed"], strict=True)),
    )


def _write(path: Path, parts: Parts) -> None:
    """Write all or nothing: an interrupted run leaves the file unchanged."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f" {json.dumps(name)}: {json.dumps(part)}" for name, part in parts.items()]
    with atomic(path) as file:
        file.write(("{\n" + ",\n".join(lines) + "\n}\n").encode())


def _rounded(value: Any) -> Any:
    """Round to six digits, more than these numbers deserve; JSON knows no infinity."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


# The page


def run(folder: Path, page: Path) -> list[str]:
    """Write the page and its figures; return the sections left out because runs are missing.

    Nothing is written unless every claim of the page holds.
    """
    results, (theorems, pictures) = read_results(folder), theory_section(folder)
    if not (results.sections or theorems):
        raise DataError(f"{folder} holds no whole table or figure: name the folder of the runs")
    claims.check(without_added(results))
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
    modules = (mnist, cifar, cells, attacks)
    return (
        environment()
        .get_template("paper.md.j2")
        .render(
            results=results,
            own=without_added(results),
            theorems=theorems,
            attacked=pd.concat([results.fig6, results.fig4, results.fig5]),
            recovered=partial(cells.recovered, results.fig6),
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
