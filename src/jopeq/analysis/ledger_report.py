"""A ledger as one page for a data protection officer: HTML and Markdown of the same content."""

from __future__ import annotations

import html
import math
import re
from dataclasses import dataclass
from typing import Any

from jopeq.ledger import Ledger, Run, printable
from jopeq.privacy.guarantee import digits_up, strength_of
from jopeq.registry import scheme_from_spec
from jopeq.sums.client_sum import ClientSum
from jopeq.sums.record_sum import RecordSum

_MARKS = re.compile(r"([\\`*_\[\]<>|#&~])")

_WHOM = {
    ("record", "sum"): (
        "every patient: one record of this hospital",
        "the server, the other hospitals, and everybody who sees the results",
    ),
    ("client", "sum"): (
        "this client (the hospital or device) with all that it contributed",
        "the server, the other clients, and everybody who sees the results",
    ),
    ("client", "server"): (
        "this client (the person or device) with all that it sent",
        "the server, which keeps every message, and everybody it tells",
    ),
}
_UNUSED = (
    "nobody yet: the first run says whether it is a patient, a client or a person",
    "nobody yet",
)
_ALWAYS = (
    (
        "Facts that hold without any one person. If the results show that smoking harms, they say "
        "so about every smoker, whether or not the smoker took part."
    ),
    "That this client took part, when, and how many numbers it sent.",
    "The computer that holds the data and its memory: whoever breaks in sees all of it.",
    "Uses of the same data that are not charged to this ledger. Their ε adds to this one.",
)
_NOT_PROTECTED = {
    ("record", "sum"): (
        "A patient from their own hospital, which holds the records.",
        "A person who has more records, or records in more hospitals, than the assumptions name.",
        "The hospital as a whole: what is typical of its patients may show.",
    ),
    ("client", "sum"): (
        "A client, if more clients work with the server than the assumptions name.",
    ),
    ("client", "server"): ("Anything sent beside the messages that were charged.",),
}
_STYLE = """
:root { color-scheme: light dark; --ink: #1d2327; --soft: #5b666d; --line: #d9dfe2; --page: #fff;
  --mark: #00804a; --box: #f3f7f5; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8ecee; --soft: #a4b0b6; --line: #3a444a;
  --page: #14181a; --mark: #3ae4a0; --box: #1b2421; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 46rem; margin: 2.5rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; border-bottom: 1px solid var(--line); }
p, li { overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .35rem .8rem .35rem 0;
  border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
th { color: var(--soft); font-weight: 600; font-size: .9rem; }
section:first-of-type { background: var(--box); border-left: 4px solid var(--mark);
  padding: .2rem 1rem .6rem; margin-top: 1.2rem; }
section:first-of-type h2 { margin-top: .6rem; border: 0; }
@media print { body { margin: 0; max-width: none; font-size: 11pt; } h2 { break-after: avoid; } }
""".strip()


@dataclass(frozen=True)
class _Section:
    """A heading, a paragraph, a table (its first row is the heading) and a list."""

    heading: str
    text: str = ""
    table: tuple[tuple[str, ...], ...] = ()
    points: tuple[str, ...] = ()


@dataclass(frozen=True)
class LedgerReport:
    """The page. Both texts are made from the ledger alone: the same ledger, the same texts."""

    title: str
    sections: tuple[_Section, ...]

    @property
    def markdown(self) -> str:
        """The page as Markdown."""
        blocks = [f"# {_escape(self.title)}"]
        for one in self.sections:
            blocks.append(f"## {one.heading}")
            blocks += [_escape(one.text)] if one.text else []
            if one.table:
                rows = [f"| {' | '.join(map(_escape, row))} |" for row in one.table]
                blocks.append("\n".join([rows[0], "|---" * len(one.table[0]) + "|", *rows[1:]]))
            if one.points:
                blocks.append("\n".join(f"- {_escape(point)}" for point in one.points))
        return "\n\n".join(blocks) + "\n"

    @property
    def html(self) -> str:
        """The page as one HTML file without scripts, which asks for nothing."""
        title = html.escape(self.title)
        parts = []
        for one in self.sections:
            parts.append(f"<section>\n<h2>{html.escape(one.heading)}</h2>")
            parts += [f"<p>{html.escape(one.text)}</p>"] if one.text else []
            if one.table:
                head, *rows = one.table
                lines = [_row("th", head)] if any(head) else []
                lines += (_row("td", row) for row in rows)
                parts.append('<div class="wide"><table>\n' + "\n".join(lines) + "\n</table></div>")
            if one.points:
                points = "\n".join(f"<li>{html.escape(point)}</li>" for point in one.points)
                parts.append(f"<ul>\n{points}\n</ul>")
            parts.append("</section>")
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta http-equiv="Content-Security-Policy" '
            "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
            f"<title>{title}</title>\n<style>\n{_STYLE}\n</style>\n</head>\n<body>\n"
            f"<h1>{title}</h1>\n" + "\n".join(parts) + "\n</body>\n</html>\n"
        )


def ledger_report(ledger: Ledger, name: str = "ledger") -> LedgerReport:
    """The page of one ledger, which ``jopeq ledger report`` writes; ``name`` is the ledger's.

    >>> page = ledger_report(Ledger(budget=1.0, delta=1e-5), "heart.json")
    >>> page.markdown.splitlines()[0]
    '# Privacy report: heart.json'
    """
    spent = ledger.spent
    kind = (spent.unit, spent.adversary)
    whom, against = _WHOM[kind] if ledger.rounds else _UNUSED
    sections = [_Section("In short", table=(("", ""), *_summary(ledger, whom, against)))]
    if ledger.rounds:
        sections += [
            _Section("What this ε means", _meaning(spent.epsilon, spent.delta)),
            _list_runs(ledger),
        ]
    else:
        sections.append(_Section("What was asked", "Nothing yet: this ledger is unused."))
    assumed = tuple(f"{text[:1].upper()}{text[1:]}." for text in spent.assumptions)
    sections += [
        _Section(
            "What the promise rests on",
            "The random numbers of the operating system are good, the published jopeq program ran "
            "unchanged, and the ledger's file was never replaced by an older copy. Further:",
            points=assumed or ("Nothing yet.",),
        ),
        _Section(
            "What is not protected",
            points=(*(_NOT_PROTECTED[kind] if ledger.rounds else ()), *_ALWAYS),
        ),
        _Section(
            "How to check this page",
            f"“jopeq ledger show {name}” prints the same ε from the same file, and “jopeq ledger "
            "report” writes this page again. Proofs and tests: the pages Guarantees and Threat "
            "model of jopeq's documentation.",
        ),
    ]
    return LedgerReport(f"Privacy report: {name}", tuple(sections))


def _summary(ledger: Ledger, whom: str, against: str) -> tuple[tuple[str, str], ...]:
    spent, budget = ledger.spent, repr(ledger.budget).removesuffix(".0")
    strength = f" ({strength_of(spent.epsilon)})" if ledger.rounds else ""
    return (
        ("Protected", whom),
        ("Against", against),
        ("ε spent", f"{digits_up(spent.epsilon)}{strength}, all rounds together"),
        ("ε allowed", f"{budget}; jopeq refuses a round that would exceed it"),
        ("δ", f"{ledger.delta:g}: the chance that the promise fails" if ledger.delta else "0"),
        ("Rounds", f"{ledger.rounds}"),
        ("Dates", _days(*ledger.days) if ledger.rounds else "none"),
    )


def _meaning(epsilon: float, delta: float) -> str:
    if epsilon > 30.0:
        return (
            f"ε = {digits_up(epsilon)} promises nothing about a person: e^ε is astronomical. It is "
            "what promises for single numbers add up to."
        )
    sure = min(99.999, 100.0 / (1.0 + math.exp(-epsilon)))
    but = f", but for a chance of δ = {delta:g}" if delta else ""
    return (
        "Compare two worlds: one with the protected data, one without. Nothing that the attacker "
        f"sees is more than e^ε = {digits_up(math.exp(epsilon), 3)} times likelier in one world "
        f"than in the other{but}. An attacker who thinks 50:50 that somebody's data were used can "
        f"become at most {digits_up(sure, 4)}% sure{', but for the same chance' if delta else ''}."
    )


def _list_runs(ledger: Ledger) -> _Section:
    rows = [
        (*describe_run(run), f"{run.spent.rounds} of {run.planned}", _days(run.first, run.last))
        for run in ledger.runs
    ]
    if not rows:
        rows = [("all", describe_updates(ledger.scheme), f"{ledger.rounds}", _days(*ledger.days))]
    heading = ("run", "asked", "rounds", "dates (UTC)")
    return _Section("What was asked", table=(heading, *rows))


def describe_run(run: Run) -> tuple[str, str]:
    """The name of a run, and its scheme in words."""
    name = printable(run.name) or "without a name"
    try:
        built: Any = scheme_from_spec(run.scheme)
    except ValueError:
        built = None
    if not isinstance(built, RecordSum | ClientSum):
        return name, printable(run.scheme)
    who = f"{built.threshold} to {built.clients} clients"
    if isinstance(built, RecordSum):
        sampled = "all" if built.sampling == 1.0 else f"{built.sampling:.3g} of them drawn"
        who = (
            f"{built.clients} hospitals with about {built.records:,} patients, {sampled} per round"
        )
    about = {key: printable(text) for key, text in run.about.items()}
    asked = f"{about['asked']}, by " if "asked" in about else ""
    words = {"asker": "asked by", "hospital": "answered by", "app": "app"}
    told = "".join(f"; {word} {about[key]}" for key, word in words.items() if key in about)
    return name, (
        f"{asked}sums of {run.entries:,} numbers over {who}; ε ≤ {built.epsilon:g}, "
        f"δ = {built.delta:g} for the whole run{told}"
    )


def describe_updates(spec: str | None) -> str:
    """The scheme of a ledger of updates in words; the spec as it is, where it is unknown."""
    try:
        built = scheme_from_spec(spec or "")
    except ValueError:
        return printable(spec or "none yet")
    unit = "message" if built.guarantee.unit == "update" else "single number"
    epsilon = digits_up(built.guarantee.epsilon)
    return f"messages by the scheme “{built.name}”, ε = {epsilon} for each {unit}"


def _days(first: str, last: str) -> str:
    return first if first == last else f"{first} to {last}"


def _row(tag: str, cells: tuple[str, ...]) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def _escape(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _MARKS.sub(r"\\\1", " ".join(text.split()))
