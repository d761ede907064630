"""The benchmarks as tables, for the terminal; and the targets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Results = Mapping[str, Any]
Row = tuple[str, ...]

WAYS = ("encode", "decode")
USED = ("response", "jopeq", "jopeq A2", "sdq", "sdq A2")  # private ones first
SCALAR = ("sdq", "jopeq", "response")
# scheme, way, rival and how many times the rival's speed it should reach on two cores
TARGETS = (
    ("sdq", "encode", "copy", 0.25),
    ("response", "encode", "copy", 0.20),
    ("sdq", "encode", "eager", 4.0),
    ("jopeq", "encode", "eager", 12.0),
    ("jopeq A2", "encode", "eager", 10.0),
    *((name, "decode", "copy", 0.30) for name in SCALAR),
)
# name, how its rows begin, way, entries a second: on an H200, for each of these rows
GPU_TARGETS = (
    ("sdq on Z", "sdq R", "encode", 250e9),
    ("response", "response", "encode", 120e9),
    ("jopeq on Z", "jopeq ε=4 R", "encode", 80e9),
    ("all schemes", "", "decode", 250e9),
)


class Table(NamedTuple):
    """A title, the names of the columns, and cells that are ready to print."""

    title: str
    head: Row
    rows: Sequence[Row]


class Outcome(NamedTuple):
    """A target, the ratio at the largest size that both sides did, and that size."""

    scheme: str
    way: str
    rival: str
    least: float
    ratio: float
    entries: int
    of_new_copy: float  # the same against a copy into fresh memory

    @property
    def is_reached(self) -> bool:
        return self.ratio >= self.least


def outcomes(codecs: Results) -> Iterator[Outcome]:
    """All targets whose two sides were measured; copy is into an array that exists."""
    for scheme, way, rival, least in TARGETS:
        row = codecs["schemes"][scheme]
        rivals = codecs["copy"]["into"] if rival == "copy" else row["eager"]
        sides = zip(codecs["sizes"], row[way], rivals, codecs["copy"]["new"], strict=True)
        both = [side for side in sides if side[1] and side[2]]
        if both:
            size, ours, theirs, fresh = both[-1]
            yield Outcome(scheme, way, rival, least, ours / theirs, size, ours / fresh)


def target_table(codecs: Results) -> Table:
    rows = []
    for one in outcomes(codecs):
        shown, fresh = (percent, percent(one.of_new_copy)) if one.rival == "copy" else (times, "–")
        reached = "yes" if one.is_reached else "no"
        numbers = (power(one.entries), shown(one.least), shown(one.ratio), reached, fresh)
        rows.append((one.scheme, one.way, one.rival, *numbers))
    head = ("scheme", "way", "against", "entries", "at least", "measured", "reached", "of new copy")
    return Table("Targets", head, rows)


def update_table(codecs: Results, sizes: Sequence[int] = (10**6, 10**7)) -> Table:
    """Bytes of one client's update and the time that coding takes, by size."""
    places = [codecs["sizes"].index(size) for size in sizes]
    copies = ((size_of(4.0 * size), "–", "–") for size in sizes)
    rows: list[Row] = [("float32, not encoded", *(cell for cells in copies for cell in cells))]
    for name in USED:
        row, cells = codecs["schemes"][name], [f"`{name}`"]
        for size, place in zip(sizes, places, strict=True):
            times_taken = (seconds(size / row[way][place]) for way in WAYS)
            cells += [size_of(row["bits"] / 8 * size), *times_taken]
        rows.append(tuple(cells))
    columns = (name for size in sizes for name in (f"{size // 10**6}M entries: bytes", *WAYS))
    return Table("One update", ("scheme", *columns), rows)


def rival_table(peers: Results) -> Table:
    """Other ways to send the same update, as bytes, error and times."""
    size, rows = peers["entries"], []
    for name, row in peers["rows"].items():
        times_taken = (seconds(size / row[way]) for way in WAYS)
        rows.append((name, size_of(row["bits"] / 8 * size), error(row["error"]), *times_taken))
    head = ("way", "bytes", "error", *WAYS)
    return Table(f"One update of {size:,} Gaussian entries", head, rows)


def codec_table(codecs: Results) -> Table:
    """Every scheme at the largest size it was run at."""
    rows = []
    for name, row in codecs["schemes"].items():
        place = max(i for i, speed in enumerate(row["encode"]) if speed)
        rivals = [codecs["copy"][kind][place] for kind in ("into", "new")]
        eager = row["eager"][place]
        encode, decode = (
            (millions(row[way][place]), *(percent(row[way][place] / rival) for rival in rivals))
            for way in WAYS
        )
        over = times(row["encode"][place] / eager) if eager else "–"
        about = (name, power(codecs["sizes"][place]), f"{row['bits']:.2f}", error(row["error"]))
        rows.append((*about, *encode, over, *decode))
    head = ("scheme", "entries", "bits", "error", "encode M/s", "of copy", "of new copy", "× eager")
    return Table("Encode and decode", (*head, "decode M/s", "of copy", "of new copy"), rows)


def growth_table(codecs: Results, way: str) -> Table:
    """Million entries a second along the sizes."""
    lines = {"copy": codecs["copy"]["into"], "new copy": codecs["copy"]["new"]}
    lines |= {name: row[way] for name, row in codecs["schemes"].items()}
    rows = [(name, *(millions(s) if s else "–" for s in line)) for name, line in lines.items()]
    title = {"encode": "Encode", "decode": "Decode", "eager": "The eager versions"}[way]
    head = ("scheme", *map(power, codecs["sizes"]))
    return Table(f"{title}, million entries a second by size", head, rows)


def thread_table(threads: Results) -> Table:
    """The speed of one thread, and how much more several do."""
    one, *more = map(str, threads["counts"])
    rows = []
    for name, row in threads["schemes"].items():
        cells = [name, power(row["entries"])]
        for way in WAYS:
            speeds = row[way]
            cells += [millions(speeds[one]), *(times(speeds[n] / speeds[one]) for n in more)]
        rows.append(tuple(cells))
    parts = ("M/s, 1 thread", *(f"{count} threads" for count in more))
    columns = [f"{way} {part}" for way in WAYS for part in parts]
    return Table("Threads", ("scheme", "entries", *columns), rows)


def plain_table(plain: Results) -> Table:
    """The plain path, and how much faster the kernels are."""
    rows = []
    for name, row in plain["schemes"].items():
        speeds = [(row["off"][way], row["on"][way]) for way in WAYS]
        cells = [(millions(before), times(after / before)) for before, after in speeds]
        rows.append((name, *cells[0], *cells[1]))
    head = ("scheme", "plain encode M/s", "kernels", "plain decode M/s", "kernels")
    return Table(f"Plain path and kernels, {power(plain['entries'])} entries", head, rows)


def stage_table(found: Results, way: str) -> Table:
    first = next(iter(found["schemes"].values()))
    rows = [
        (name, f"{row[f'{way}_bytes']:.3g}", *(f"{t:.2f}" for t in row[way].values()))
        for name, row in found["schemes"].items()
    ]
    title = f"Nanoseconds an entry, {way} on one thread, {power(found['entries'])} entries"
    return Table(title, ("scheme", "bytes of key stream", *first[way]), rows)


def aggregation_table(found: Results) -> Table:
    """Payloads a second on a server."""
    rows = []
    for name, row in found["schemes"].items():
        size = f"{row['bytes'] / found['payloads'] / 1e3:,.0f}"
        speeds = f"{row['aggregate']:,.0f}", f"{row['decode']:,.0f}", f"{row['plain']:,.1f}"
        factors = [times(row["aggregate"] / row[other]) for other in ("decode", "plain")]
        rows.append((name, size, *speeds, *factors))
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


def fresh_table(rows: Sequence[Results]) -> Table:
    """First calls, and those of the authors' code if it was there."""
    named = [(f"`{row['scheme']}` on {row['lattice']}", row) for row in rows]
    cells = [
        (
            name,
            f"{row['entries']:,}",
            *(f"{1e3 * row[way]:.1f}" for way in ("authors", "plain", "kernels")),
            *(times(row["authors"] / row[way]) for way in ("plain", "kernels")),
        )
        for name, row in named
    ]
    head = ("scheme", "entries", "authors, ms", "plain, ms", "kernels, ms", "plain", "kernels")
    return Table("First call of a process, encode and decode", head, cells)


def gpu_table(gpu: Results) -> Table:
    """Billion entries a second of the GPU kernels."""
    rows = []
    for name, row in gpu["schemes"].items():
        bytes_, shares = ([row[f"{way}_{what}"] for way in WAYS] for what in ("bytes", "of_copy"))
        encode, decode = (
            (f"{row[way] / 1e9:,.0f}", f"{size / 1e12:.2f}", percent(share))
            for way, size, share in zip(WAYS, bytes_, shares, strict=True)
        )
        over = times(row["over_eager"]) if row.get("over_eager") else "–"
        rest = (f"{row['add'] / 1e9:,.0f}", f"{row['payload'] / 1e9:,.1f}")
        rows.append((name, f"{row['bits']:.2f}", *encode, over, *decode, *rest))
    head = ("scheme", "bits", "encode G/s", "TB/s", "of copy", "× eager", "decode G/s", "TB/s")
    title = f"{gpu['device']}, copy {gpu['copy'] / 1e12:.2f} TB/s"
    return Table(title, (*head, "of copy", "add G/s", "payload G/s"), rows)


def gpu_target_table(gpu: Results) -> Table:
    """The targets on a GPU: the slowest row of each scheme counts."""
    rows = []
    for name, start, way, least in GPU_TARGETS:
        slowest = min(row[way] for label, row in gpu["schemes"].items() if label.startswith(start))
        reached = "yes" if slowest >= least else "no"
        rows.append((name, way, f"{least / 1e9:.0f}", f"{slowest / 1e9:.0f}", reached))
    head = ("scheme", "way", "at least G/s", "slowest G/s", "reached")
    return Table(f"Targets on {gpu['device']}", head, rows)


def all_tables(results: Results) -> dict[str, Table]:
    """Those of everything that was measured, by name."""
    codecs, stages = results["codecs"], results["stages"]
    tables = {"codecs": codec_table(codecs)}
    tables |= {f"growth_{way}": growth_table(codecs, way) for way in (*WAYS, "eager")}
    tables["threads"] = thread_table(results["threads"])
    tables |= {f"stages_{way}": stage_table(stages, way) for way in WAYS}
    tables["plain"] = plain_table(results["plain"])
    tables["first_call"] = first_call_table(results["first_call"])
    tables["peers"] = rival_table(results["peers"])
    tables["aggregation"] = aggregation_table(results["aggregation"])
    if "fresh" in results:
        tables["fresh"] = fresh_table(results["fresh"])
    if "gpu" in results:
        tables["gpu"] = gpu_table(results["gpu"])
        tables["gpu_targets"] = gpu_target_table(results["gpu"])
    return {**tables, "targets": target_table(codecs)}


def millions(speed: float) -> str:
    """Entries a second, in millions."""
    value = speed / 1e6
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def times(ratio: float) -> str:
    """A factor."""
    return f"{ratio:,.0f}×" if ratio >= 20 else f"{ratio:.1f}×" if ratio >= 1 else f"{ratio:.2f}×"


def percent(share: float) -> str:
    """Two digits."""
    return f"{100 * share:.2g}%" if share < 0.0995 else f"{100 * share:.0f}%"


def error(value: float) -> str:
    """Squared error over squared length."""
    if not 0 < value < 0.001:
        return f"{value:.3g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}·10{raised(int(exponent))}"


def power(entries: int) -> str:
    """Round numbers as powers of ten."""
    exponent = len(str(entries)) - 1
    return f"10{raised(exponent)}" if entries == 10**exponent else f"{entries:,}"


def raised(exponent: int) -> str:
    """An exponent as it is set behind its base."""
    return str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def size_of(count: float) -> str:
    """So many bytes."""
    return f"{count / 1e6:,.3g} MB" if count >= 1e6 else f"{count / 1e3:,.3g} kB"


def seconds(value: float) -> str:
    """Seconds, or milliseconds."""
    if value < 1e-4:
        return "< 0.1 ms"
    return f"{value:.2g} s" if value >= 0.1 else f"{1e3 * value:.2g} ms"
