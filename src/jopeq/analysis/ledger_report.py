"""A ledger as one page for a data protection officer, in HTML."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable
from typing import Any

from jopeq.ledger import Ledger, Run, printable
from jopeq.privacy.guarantee import digits_up, strength_of
from jopeq.registry import scheme_from_spec
from jopeq.sums.record_sum import ClientSum, RecordSum

# (unit, adversary): who is protected, against whom, what is not protected
_KINDS: dict[tuple[str, str], tuple[str, str, list[str]]] = {
    ("record", "sum"): (
        "every patient: one record of this hospital",
        "the server, the other hospitals, and everybody who sees the results",
        [
            "A patient from their own hospital, which holds the records.",
            "A person with more records, or records in more hospitals, than the assumptions name.",
            "The hospital as a whole: what is typical of its patients may show.",
        ],
    ),
    ("client", "sum"): (
        "this client (the hospital or device) with all its contributions",
        "the server, the other clients, and everybody who sees the results",
        ["A client, if more clients work with the server than the assumptions name."],
    ),
    ("client", "server"): (
        "this client (the person or device) with all its messages",
        "the server, which keeps every message, and everybody it tells",
        ["Anything sent besides the messages that were charged."],
    ),
}
_UNUSED: tuple[str, str, list[str]] = (
    "nobody yet: the first run says whether it is a patient, a client or a person",
    "nobody yet",
    [],
)
_CHECK = (
    "“jopeq ledger show NAME” prints the same ε from the same file, and “jopeq ledger report” "
    "writes this page again. Proofs and tests: the pages Guarantees and Threat model of jopeq's "
    "documentation."
)
_ALWAYS = [
    "Facts that hold without any one person, such as that smoking harms every smoker.",
    "That this client took part, when, and how many numbers it sent.",
    "The computer that holds the data, and its memory: whoever breaks in sees everything.",
    "Uses of the same data that are not charged to this ledger. Their ε adds to this one.",
]
_RESTS_ON = (
    "The random numbers of the operating system are good, the published jopeq program ran "
    "unchanged, and the ledger's file was never replaced by an older copy. Also:"
)
_STYLE = """
:root { color-scheme: light dark; --soft: #5b666d; --line: #d9dfe2; --box: #f3f7f5; }
@media (prefers-color-scheme: dark) { :root { --soft: #a4b0b6; --line: #3a444a; --box: #1b2421; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2.5rem auto;
  padding: 0 1.2rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; border-bottom: 1px solid var(--line); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .35rem .8rem .35rem 0;
  border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-size: .9rem; }
section:first-of-type { background: var(--box); padding: .2rem 1rem .6rem; }
@media print { body { margin: 0; max-width: none; font-size: 11pt; } h2 { break-after: avoid; } }
""".strip()
_PAGE = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>TITLE</title>
<style>
{_STYLE}
</style>
</head>
<body>
<h1>TITLE</h1>
"""


def ledger_report(ledger: Ledger, name: str = "ledger") -> str:
    """The page of one ledger, which ``jopeq ledger report`` writes; ``name`` is the ledger's.

    It is one file without scripts, which loads nothing; the same ledger gives the same page.

    >>> "unused" in ledger_report(Ledger(budget=1.0, delta=1e-5), "heart.json")
    True
    """
    title, spent = f"Privacy report: {name}", ledger.spent
    kind = _KINDS[spent.unit, spent.adversary] if ledger.rounds else _UNUSED
    whom, against, open_to = kind
    points = [f"{text[:1].upper()}{text[1:]}." for text in spent.assumptions]
    sections = {"In short": _table(_summary(ledger, whom, against))}
    if ledger.rounds:
        sections["What this ε means"] = _paragraph(_meaning(spent.epsilon, spent.delta))
        sections["What was asked"] = _runs(ledger)
    else:
        sections["What was asked"] = _paragraph("Nothing: this ledger is unused.")
    rest = _list(points) if points else _paragraph("Nothing yet.")
    sections["What the promise rests on"] = f"{_paragraph(_RESTS_ON)}\n{rest}"
    sections["What is not protected"] = _list([*open_to, *_ALWAYS])
    sections["How to check this page"] = _paragraph(_CHECK.replace("NAME", name))
    body = "".join(
        f"<section>\n<h2>{html.escape(heading)}</h2>\n{shown}\n</section>\n"
        for heading, shown in sections.items()
    )
    return f"{_PAGE.replace('TITLE', html.escape(title))}{body}</body>\n</html>\n"


def _paragraph(text: str) -> str:
    return f"<p>{html.escape(text)}</p>"


def _list(points: list[str]) -> str:
    return "<ul>\n" + "\n".join(f"<li>{html.escape(point)}</li>" for point in points) + "\n</ul>"


def _table(rows: Iterable[tuple[str, ...]], heads: tuple[str, ...] = ()) -> str:
    lines = []
    for tag, row in (("th", heads), *(("td", row) for row in rows)):
        cells = "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)
        lines += [f"<tr>{cells}</tr>"] if row else []
    return "<table>\n" + "\n".join(lines) + "\n</table>"


def _summary(ledger: Ledger, whom: str, against: str) -> tuple[tuple[str, str], ...]:
    spent, budget = ledger.spent, repr(ledger.budget).removesuffix(".0")
    strength = f" ({strength_of(spent.epsilon)})" if ledger.rounds else ""
    return (
        ("Protected", whom),
        ("Against", against),
        ("ε spent", f"{digits_up(spent.epsilon)}{strength}, for all rounds together"),
        ("ε allowed", f"{budget}; jopeq refuses a round that would exceed it"),
        ("δ", f"{ledger.delta:g}: the chance that the promise fails" if ledger.delta else "0"),
        ("Rounds", f"{ledger.rounds}"),
        ("Dates", _days(*ledger.days) if ledger.rounds else "none"),
    )


def _meaning(epsilon: float, delta: float) -> str:
    if epsilon > 30.0:  # the sum of promises for single numbers
        return f"ε = {digits_up(epsilon)} promises nothing about a person: e^ε is astronomical."
    sure = min(99.999, 100.0 / (1.0 + math.exp(-epsilon)))
    but = f", except with a chance of δ = {delta:g}" if delta else ""
    return (
        "Compare two worlds: one with the protected data, one without. Nothing that the attacker "
        f"sees is more than e^ε = {digits_up(math.exp(epsilon), 3)} times likelier in one world "
        f"than in the other{but}. An attacker who thinks 50:50 that somebody's data were used can "
        f"become at most {digits_up(sure, 4)}% sure{', with the same exception' if delta else ''}."
    )


def _runs(ledger: Ledger) -> str:
    rows = [
        (*describe_run(run), f"{run.spent.rounds} of {run.planned}", _days(run.first, run.last))
        for run in ledger.runs
    ]
    updates = ("all", describe_updates(ledger.scheme), f"{ledger.rounds}", _days(*ledger.days))
    return _table(rows or [updates], ("run", "asked", "rounds", "dates (UTC)"))


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
        who = f"{built.clients} hospitals with about {built.records:,} patients"
        who += f", {sampled} per round"
    about = {key: printable(text) for key, text in run.about.items()}
    asked = f"{about['asked']}, by " if "asked" in about else ""
    words = {"asker": "asked by", "hospital": "answered by", "app": "app"}
    told = "".join(f"; {word} {about[key]}" for key, word in words.items() if key in about)
    return name, (
        f"{asked}sums of {run.entries:,} numbers over {who}; ε ≤ {built.epsilon:g}, "
        f"δ = {built.delta:g} for the whole run{told}"
    )


def describe_updates(spec: str | None) -> str:
    """The scheme of a ledger of updates in words; an unknown spec unchanged."""
    try:
        built = scheme_from_spec(spec or "")
    except ValueError:
        return printable(spec or "none yet")
    unit = "message" if built.guarantee.unit == "update" else "single number"
    epsilon = digits_up(built.guarantee.epsilon)
    return f"messages by the scheme “{built.name}”, ε = {epsilon} for each {unit}"


def _days(first: str, last: str) -> str:
    return first if first == last else f"{first} to {last}"
