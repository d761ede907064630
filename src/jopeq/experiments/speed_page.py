"""docs/speed.md, written from results/bench.json: no number on it is typed by hand.

python -m jopeq.experiments.speed_page results/bench.json docs/speed.md docs/figures
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jopeq.experiments import speed_tables as tables
from jopeq.experiments.page_words import percent, reflow, table
from jopeq.experiments.speed_figure import draw_speed
from jopeq.experiments.speed_targets import Outcome, outcomes

Results = Mapping[str, Any]

FIGURE = "speed.svg"
_BUSY = 0.5  # more than this many processes at work before the run, and ratios may be off

_HEAD = """# Speed

What the plain NumPy path, the compiled kernels on CPU and GPU, and others reach; how to use the
kernels: [Be fast](fast.md).

## What was measured

`make bench` measures all of this again, in one process, and prints it; `results/bench.json` holds
the numbers of this page. {machine}

*copy* is `np.copyto` into an array that exists, *new copy* is `update.copy()`, which has to be
given memory first. *eager* is the obvious PyTorch version (`benchmarks/eager.py`): it stops at the
quantized point and makes no bits, with one thread or one for every core, whichever is faster.
Speeds are million entries a second, M/s, of whole calls: from an array to payload bytes and back.
*error* is ‖decoded − update‖²/‖update‖² of a Gaussian update, *bits* is the payload's size by
entry. Privacy noise is most of the error wherever there is any.

A speed is the best of the calls in a fraction of a second. A hiccup of the machine that lasts
longer stays in: where a scheme is much slower at one size, or gains nothing from a second thread,
while its like do not, that may be the reason, which was not traced. `--turns 2` measures large
updates again, minutes later.

![Speed against size](figures/{figure})

{codecs}

A scheme that would take more than a few seconds a call at the largest size is shown at a smaller
one, against the copy of that size.
"""

_TARGETS = """
## Targets

{targets}

{verdict}
"""

_GROWTH = """
## Growth

Small updates pay for making keys and a header, the same for any size; large ones leave the caches.

{encode}

{decode}

{threads}

## Where the time goes

Every stage run alone; *rest* is the kernel: reading, noise, dither, nearest point, packing. A copy
takes {copy:.2f} ns an entry at this size.

{stages_encode}

{stages_decode}

## Kernels and the plain path

{plain}

{first_call}

## Beside others

{peers}

{missing}

## A server

Every way handles all {payloads} payloads; nothing is extrapolated.

{aggregation}

{slower}
"""

_GPU = """
## GPU

{device}, {entries} float32 entries, measured on {date}. {note} Kernels alone, by the device's
clock; *add* decodes into a sum of float64; *payload* is a whole `encode`, up to bytes on the host.

{table}

{targets}
"""


def write_speed_page(results: Results, page: Path, figures: Path) -> None:
    """Write the page and, beside it, its figure."""
    figures.mkdir(parents=True, exist_ok=True)
    draw_speed(results["codecs"], figures / FIGURE)
    page.write_text(speed_page(results), encoding="utf-8")


def speed_page(results: Results) -> str:
    """The text of the page."""
    codecs, stages = results["codecs"], results["stages"]
    parts = [
        _HEAD.format(
            machine=_machine(results["machine"]),
            figure=FIGURE,
            codecs=_markdown(tables.codec_table(codecs)),
        ),
        _TARGETS.format(
            targets=_markdown(tables.target_table(codecs)),
            verdict=_verdict(results),
        ),
        _GROWTH.format(
            encode=_titled(tables.growth_table(codecs, "encode")),
            decode=_titled(tables.growth_table(codecs, "decode")),
            threads=_titled(tables.thread_table(results["threads"])),
            copy=stages["copy"],
            stages_encode=_titled(tables.stage_table(stages, "encode")),
            stages_decode=_titled(tables.stage_table(stages, "decode")),
            plain=_titled(tables.plain_table(results["plain"])),
            first_call=_titled(tables.first_call_table(results["first_call"])),
            peers=_titled(tables.peer_table(results["peers"])),
            missing=_missing(results["peers"]["missing"]),
            payloads=results["aggregation"]["payloads"],
            aggregation=_titled(tables.aggregation_table(results["aggregation"])),
            slower=_slower(results["aggregation"]["schemes"]),
        ),
    ]
    if "gpu" in results:
        gpu = results["gpu"]
        parts.append(
            _GPU.format(
                device=gpu["device"],
                entries=f"{gpu['entries']:,}",
                date=gpu["date"],
                note=gpu["note"],
                table=_titled(tables.gpu_table(gpu)),
                targets=_titled(tables.gpu_target_table(gpu)),
            )
        )
    return reflow("".join(parts))


def _machine(found: Results) -> str:
    text = (
        f"This run: {found['date']}, {found['processor']}, {found['cores']} cores, Python "
        f"{found['python']}, NumPy {found['numpy']}, Numba {found['numba']}, PyTorch "
        f"{found['torch']}, {found['seconds']} seconds."
    )
    busy = found["load_before"]
    if busy is None or busy <= _BUSY:
        return text
    return (
        f"{text} **The machine was not quiet** (load {busy:g} before the run): speeds are too low, "
        "and ratios between ways that use threads differently are not to be relied on."
    )


def _close(found: list[Outcome]) -> str:
    """Which targets another run may miss: runs of the same code differ by more than a tenth."""
    close = [one.target for one in found if one.ratio < 1.1 * one.target.least]
    if not close:
        return ""
    names = ", ".join(f"`{target.scheme}` {target.way}" for target in close)
    return (
        " By less than a tenth, which is less than runs on one machine differ, so that another "
        f"run may miss them: {names}."
    )


def _verdict(results: Results) -> str:
    found = list(outcomes(results["codecs"]))
    missed = [one for one in found if not one.is_reached]
    if not missed:
        return f"All {len(found)} are reached.{_close(found)}"
    lines = dict.fromkeys(_limit(one, results) for one in missed)
    reached = f"{len(found) - len(missed)} of {len(found)} are reached. What the others meet:"
    return f"{reached}\n\n" + "\n".join(lines)


def _limit(one: Outcome, results: Results) -> str:
    """What stands in the way of a target, by the stages."""
    way = one.target.way
    row = results["stages"]["schemes"][one.target.scheme]
    parts, cores = row[way], results["machine"]["cores"]
    text = (
        f"- `{one.target.scheme}`, {way}: of {parts['all']:.2f} ns an entry on one thread, "
        f"{parts['key stream']:.2f} make {row[f'{way}_bytes']:.3g} bytes of key stream and "
        f"{parts['rest']:.2f} are the kernel."
    )
    if one.target.rival != "copy":
        return text
    place = results["codecs"]["sizes"].index(one.entries)
    copy = 1e9 / results["codecs"]["copy"]["into"][place]
    alone = copy * cores / parts["key stream"]
    return (
        f"{text} The key stream alone, on {cores} cores, would run at {percent(alone)} of a copy."
    )


def _missing(missing: Mapping[str, str]) -> str:
    if not missing:
        return "All of them were installed."
    return "\n".join(f"- {name} is left out: `{reason}`." for name, reason in missing.items())


def _slower(rows: Mapping[str, Any]) -> str:
    names = [f"`{name}`" for name, row in rows.items() if row["aggregate"] < row["decode"]]
    if not names:
        return "`aggregate` is the fastest way for all of them."
    return (
        f"For {', '.join(names)} decoding one payload after another is faster than `aggregate` at "
        "this size; what `aggregate` saves there is the memory of whole decoded updates."
    )


def _markdown(shown: tables.Table) -> str:
    return table(shown.head, shown.rows)


def _titled(shown: tables.Table) -> str:
    return f"{shown.title}:\n\n{_markdown(shown)}"


def main(results: str, page: str, figures: str) -> None:
    """Write the page from a file of results."""
    kept = json.loads(Path(results).read_text(encoding="utf-8"))
    write_speed_page(kept, Path(page), Path(figures))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
