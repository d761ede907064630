"""``python -m paper``: the paper's tables and figures, from scratch or from the kept results."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from jopeq.errors import JoPEQError
from jopeq_lab.training.config import check_device
from jopeq_lab.training.data import Dataset, load
from paper import cifar, mnist, results
from paper.attacks import attack_figure
from paper.runs import Run, run_job, run_jobs

TRAININGS = {
    "table1": mnist.table1_jobs,
    "fig2": mnist.fig2_jobs,
    "fig3": mnist.fig3_jobs,
    "table2": cifar.jobs,
}
ATTACKS = ("fig4", "fig5", "fine", "fig6", "repository")
WRITTEN = ("theory", "pages")  # nothing is trained for them


def main(arguments: list[str] | None = None) -> int:
    """Run what is missing in the results, draw the figures and write the page."""
    given = _parser().parse_args(arguments)
    try:
        page = _writable(given.page)
        for place in getattr(given, "add", []):
            mnist.add(place)
        if given.name in TRAININGS:
            _train(given)
        elif given.name in ATTACKS:
            _attack(given)
        if given.name in WRITTEN:
            results.compute(given.results / results.THEORY_FILE)
        left_out = results.run(given.results, page)
        print(f"wrote {page}")
        for place, why in mnist.REFUSED.items():
            print(f"{place}: {why}")
        if left_out:
            print(f"left out, since runs are missing: {', '.join(left_out)}")
    except (JoPEQError, ValueError, RuntimeError, OSError) as error:
        print(f"python -m paper {given.name}: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    """Parse the command line; each command takes only the options it uses."""
    parser = argparse.ArgumentParser("python -m paper", description=__doc__)
    commands = parser.add_subparsers(dest="name", required=True)
    for name in (*TRAININGS, *ATTACKS, *WRITTEN):
        command = commands.add_parser(name, allow_abbrev=False)
        add = command.add_argument
        add("--results", type=Path, default=Path("results"), help="where runs are kept")
        add("--page", type=Path, default=Path("docs/paper.md"), help="figures lie next to it")
        if name not in WRITTEN:
            add("--data-dir", type=Path, help="where the data files are")
            add("--device", help="cpu or cuda; trainings on a GPU multiply in TF32")
        if name in ("table1", "fig2", "fig3", "pages"):
            text = "another row: an importable scheme, or a class or function that makes one"
            add("--add", action="append", default=[], metavar="MODULE:NAME", help=text)
        if name in TRAININGS:
            add("--seeds", type=_positive, help="seeds of each run")
            add("--processes", type=_positive, help="runs at a time")
    return parser


def _positive(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return int(text)


def _writable(page: Path) -> Path:
    """Return the page if it can be written; otherwise fail before the work."""
    page.parent.mkdir(parents=True, exist_ok=True)
    if page.is_dir() or not os.access(page.parent, os.W_OK):
        raise OSError(f"--page {page} cannot be written: name a file in a folder of yours")
    return page


def _train(given: argparse.Namespace) -> None:
    """Run the jobs of a table or figure that are not kept yet."""
    counts = {} if given.seeds is None else {"count": given.seeds}
    jobs = list(TRAININGS[given.name](given.data_dir, **counts))
    if given.device is not None:
        new = {"device": given.device, "tf32": given.device.startswith("cuda")}
        jobs = [replace(job, config=replace(job.config, **new)) for job in jobs]
    _load(jobs[0].config.data, given.data_dir)
    with Console(stderr=True).status("training") as status:

        def show(done: int, total: int, run: Run) -> None:
            status.update(f"{done} of {total}; {run.model} {run.label}: {run.test_accuracy:.4f}")

        done = run_jobs(
            jobs,
            given.results / f"{given.name}.jsonl",
            run_job,
            processes=given.processes,
            progress=show,
            also=[given.results / "table1.jsonl"] if given.name == "fig3" else [],
            modules=[place.partition(":")[0] for place in mnist.ADDED],
        )
    print(f"{len(done)} of {len(jobs)} runs are there")
    if given.name == "table2":
        cifar.compute_conventions(given.results / cifar.SNR_FILE)


def _attack(given: argparse.Namespace) -> None:
    """Run the attacks of a figure that are not kept yet."""
    device = given.device or "cpu"
    check_device(device)
    dataset = _load("cifar10", given.data_dir)
    with Console(stderr=True).status("attacking") as status:

        def show(done: int, total: int, text: str) -> None:
            status.update(f"{done} of {total} cells; {text}")

        attack_figure(given.name, dataset, given.results, device=device, progress=show)


def _load(name: str, data_dir: Path | None) -> Dataset:
    """The data set, downloaded if it is not there."""
    with Console(stderr=True).status(f"reading {name}, downloading it if it is not there"):
        return load(name, None if data_dir is None else str(data_dir))


if __name__ == "__main__":
    sys.exit(main())
