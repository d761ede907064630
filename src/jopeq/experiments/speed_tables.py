"""The tables of the benchmarks, as the terminal and docs/speed.md show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jopeq.experiments.page_words import percent
from jopeq.experiments.speed_targets import GPU_TARGETS, outcomes

Results = Mapping[str, Any]
Row = tuple[str, ...]

_MISSING = "–"


@dataclass(frozen=True)
class Table:
    """A title, the names of the columns, and cells that are ready to print."""

    title: str
    head: Row
    rows: Sequence[Row]


def codec_table(codecs: Results) -> Table:
    """Every scheme at the largest size it was run at."""
    rows = []
    for name, row in codecs["schemes"].items():
        place = max(i for i, speed in enumerate(row["encode"]) if speed)
        copy, fresh = (codecs["copy"][kind][place] for kind in ("into", "new"))
        encode, decode = row["encode"][place], row["decode"][place]
        theirs = row["eager"][place]
        rows.append(
            (
                name,
                power(codecs["sizes"][place]),
                f"{row['bits']:.2f}",
                error(row["error"]),
                millions(encode),
                percent(encode / copy),
                percent(encode / fresh),
                times(encode / theirs) if theirs else _MISSING,
                millions(decode),
                percent(decode / copy),
                percent(decode / fresh),
            )
        )
    head = ("scheme", "entries", "bits", "error", "encode M/s", "of copy", "of new copy")
    return Table(
        "Encode and decode", (*head, "× eager", "decode M/s", "of copy", "of new copy"), rows
    )


def growth_table(codecs: Results, way: str) -> Table:
    """Million entries a second along the sizes."""
    rows = [
        ("copy", *map(millions, codecs["copy"]["into"])),
        ("new copy", *map(millions, codecs["copy"]["new"])),
    ]
    for name, row in codecs["schemes"].items():
        rows.append((name, *(millions(speed) if speed else _MISSING for speed in row[way])))
    title = {"encode": "Encode", "decode": "Decode", "eager": "The eager versions"}[way]
    head = ("scheme", *map(power, codecs["sizes"]))
    return Table(f"{title}, million entries a second by size", head, rows)


def target_table(codecs: Results) -> Table:
    """What was aimed at, and whether it was reached."""
    rows = []
    for found in outcomes(codecs):
        target = found.target
        is_share = target.rival == "copy"
        number = percent if is_share else times
        rows.append(
            (
                target.scheme,
                target.way,
                "copy" if is_share else "eager",
                power(found.entries),
                number(target.least),
                number(found.ratio),
                "yes" if found.is_reached else "no",
                percent(found.of_new_copy) if found.of_new_copy else _MISSING,
            )
        )
    head = ("scheme", "way", "against", "entries", "at least", "measured", "reached")
    return Table("Targets", (*head, "of new copy"), rows)


def thread_table(threads: Results) -> Table:
    """One thread, and how much more several do."""
    one, *more = (str(count) for count in threads["counts"])
    rows = []
    for name, row in threads["schemes"].items():
        cells = [name, power(row["entries"])]
        for way in ("encode", "decode"):
            speeds = row[way]
            cells += [millions(speeds[one]), *(times(speeds[n] / speeds[one]) for n in more)]
        rows.append(tuple(cells))
    columns = [f"{way} {part}" for way in ("encode", "decode") for part in _thread_heads(more)]
    return Table("Threads", ("scheme", "entries", *columns), rows)


def plain_table(plain: Results) -> Table:
    """The plain path, and how much quicker the kernels are."""
    rows = []
    for name, row in plain["schemes"].items():
        cells = [name]
        for way in ("encode", "decode"):
            before, after = row["off"][way], row["on"][way]
            cells += [millions(before), times(after / before)]
        rows.append(tuple(cells))
    head = ("scheme", "plain encode M/s", "kernels", "plain decode M/s", "kernels")
    return Table(f"Plain path and kernels, {power(plain['entries'])} entries", head, rows)


def stage_table(found: Results, way: str) -> Table:
    """Nanoseconds an entry of every stage, on one thread."""
    first = next(iter(found["schemes"].values()))
    rows = [
        (name, f"{row[f'{way}_bytes']:.3g}", *(f"{t:.2f}" for t in row[way].values()))
        for name, row in found["schemes"].items()
    ]
    title = f"Nanoseconds an entry, {way} on one thread, {power(found['entries'])} entries"
    return Table(title, ("scheme", "bytes of key stream", *first[way]), rows)


def peer_table(peers: Results) -> Table:
    """Other ways to make an update smaller."""
    rows = [
        (
            name,
            f"{row['bits']:.2f}",
            error(row["error"]),
            millions(row["encode"]),
            millions(row["decode"]),
        )
        for name, row in peers["rows"].items()
    ]
    head = ("way", "bits", "error", "encode M/s", "decode M/s")
    return Table(f"Peers, {power(peers['entries'])} Gaussian entries", head, rows)


def aggregation_table(found: Results) -> Table:
    """Payloads a second on a server."""
    rows = [
        (
            name,
            f"{row['bytes'] / found['payloads'] / 1e3:,.0f}",
            f"{row['aggregate']:,.0f}",
            f"{row['decode']:,.0f}",
            f"{row['plain']:,.1f}",
            times(row["aggregate"] / row["decode"]),
            times(row["aggregate"] / row["plain"]),
        )
        for name, row in found["schemes"].items()
    ]
    head = ("scheme", "kB each", "aggregate /s", "decode and add /s", "plain path /s")
    title = f"Mean of {found['payloads']} payloads of {power(found['entries'])} entries"
    return Table(title, (*head, "× decode", "× plain"), rows)


def first_call_table(found: Results) -> Table:
    """Seconds of the first steps of a process."""
    names = {"plain": "plain path", "load": "kernels from the cache", "compile": "kernels compiled"}
    steps = ("numpy", "import", "load", "first", "second")
    rows = [
        (label, *(seconds(found[kind][step]) for step in steps)) for kind, label in names.items()
    ]
    head = ("path", "import numpy", "import jopeq", "load kernels", "first encode", "second encode")
    return Table(f"A new process, {power(found['entries'])} entries, sdq", head, rows)


def gpu_table(gpu: Results) -> Table:
    """Billion entries a second of the GPU kernels."""
    rows = []
    for name, row in gpu["schemes"].items():
        over = row.get("over_eager")
        rows.append(
            (
                name,
                f"{row['bits']:.2f}",
                f"{row['encode'] / 1e9:,.0f}",
                f"{row['encode_bytes'] / 1e12:.2f}",
                percent(row["encode_of_copy"]),
                times(over) if over else _MISSING,
                f"{row['decode'] / 1e9:,.0f}",
                f"{row['decode_bytes'] / 1e12:.2f}",
                percent(row["decode_of_copy"]),
                f"{row['add'] / 1e9:,.0f}",
                f"{row['payload'] / 1e9:,.1f}",
            )
        )
    head = ("scheme", "bits", "encode G/s", "TB/s", "of copy", "× eager", "decode G/s", "TB/s")
    return Table(
        f"{gpu['device']}, copy {gpu['copy'] / 1e12:.2f} TB/s",
        (*head, "of copy", "add G/s", "payload G/s"),
        rows,
    )


def gpu_target_table(gpu: Results) -> Table:
    """What was aimed at on a GPU: the slowest row of each scheme counts."""
    rows = []
    for meant, start, way, least in GPU_TARGETS:
        slowest = min(row[way] for name, row in gpu["schemes"].items() if name.startswith(start))
        reached = "yes" if slowest >= least else "no"
        rows.append((meant, way, f"{least / 1e9:.0f}", f"{slowest / 1e9:.0f}", reached))
    head = ("scheme", "way", "at least G/s", "slowest G/s", "reached")
    return Table(f"Targets on {gpu['device']}", head, rows)


def all_tables(results: Results) -> list[Table]:
    """Those of everything that was measured."""
    codecs = results["codecs"]
    return [
        codec_table(codecs),
        *(growth_table(codecs, way) for way in ("encode", "decode", "eager")),
        thread_table(results["threads"]),
        *(stage_table(results["stages"], way) for way in ("encode", "decode")),
        plain_table(results["plain"]),
        first_call_table(results["first_call"]),
        peer_table(results["peers"]),
        aggregation_table(results["aggregation"]),
        *([gpu_table(results["gpu"])] if "gpu" in results else []),
        *([gpu_target_table(results["gpu"])] if "gpu" in results else []),
        target_table(codecs),
    ]


def millions(speed: float) -> str:
    """Entries a second, in millions."""
    value = speed / 1e6
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def times(ratio: float) -> str:
    """A factor."""
    return f"{ratio:,.0f}×" if ratio >= 20 else f"{ratio:.1f}×" if ratio >= 1 else f"{ratio:.2f}×"


def error(value: float) -> str:
    """Squared error over squared length."""
    return f"{value:.1e}" if 0 < value < 0.001 else f"{value:.3g}"


def power(entries: int) -> str:
    """Round numbers as powers of ten."""
    exponent = len(str(entries)) - 1
    raised = str(exponent).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{raised}" if entries == 10**exponent else f"{entries:,}"


def seconds(value: float) -> str:
    """Seconds, or milliseconds."""
    if value < 1e-4:
        return "< 0.1 ms"
    return f"{value:.2g} s" if value >= 0.1 else f"{1e3 * value:.2g} ms"


def _thread_heads(more: Sequence[str]) -> list[str]:
    return ["M/s, 1 thread", *(f"{count} threads" for count in more)]
