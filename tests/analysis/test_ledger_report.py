"""The page for the data protection officer says what the ledger holds, and nothing runs in it."""

import html
import re
from datetime import UTC, datetime

import numpy as np
import pytest

import jopeq
from jopeq.analysis.ledger_report import ledger_report
from jopeq.ledger import Ledger
from jopeq.privacy.guarantee import digits_up

TODAY = datetime.now(UTC).date().isoformat()
TERMS = {"epsilon": 1.0, "clip": 1.0, "records": 4000, "sampling": 1.0, "rounds": 30}
HOSTILE = "heart <script>alert(1)</script> | *all*\n# now"


def records():
    ledger = Ledger(4.0, 1e-5)
    for run in (HOSTILE, "lungs", "lungs"):
        ledger.charge(jopeq.RecordSum(**TERMS, clients=10, threshold=8), 650, run=run)
    return ledger


def client_sum():
    ledger = Ledger(8.0, 1e-5)
    ledger.charge(jopeq.ClientSum(epsilon=8.0, clip=1.0, clients=5, threshold=4, rounds=6), 100)
    return ledger


def messages():
    ledger = Ledger(1e6)
    ledger.encode(jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=0.1), np.zeros(10))
    return ledger


@pytest.mark.parametrize("make", [records, client_sum, messages])
def test_both_texts_say_what_the_ledger_says(make):
    ledger = make()
    page, again = ledger_report(ledger, "l"), ledger_report(Ledger.from_json(ledger.to_json()), "l")
    assert (page.html, page.markdown) == (again.html, again.markdown)
    shown = html.unescape(re.sub(r"<[^>]*>", " ", page.html.split("</style>")[1]))
    said = re.sub(r"\\(.)", r"\1", page.markdown)
    spent = ledger.spent
    for text in (shown, said):
        for part in (digits_up(spent.epsilon), TODAY, "What is not protected"):
            assert part in text
        for assumption in spent.assumptions:
            assert assumption.removeprefix("if ")[1:] in text
    assert "<script" not in page.html
    assert page.html.count("<b>") == 0
    assert "<script" not in page.markdown.replace(r"\<script", "")


def test_a_name_stays_within_its_cell():
    page = ledger_report(records(), "name | <i>")
    lines = page.markdown.splitlines()
    assert not any(line.startswith("# now") for line in lines)
    row = next(line for line in lines if "alert" in line)
    assert len(re.findall(r"(?<!\\)\|", row)) == 5  # of four cells
    assert "1 of 30" in row
    assert "2 of 30" in page.markdown
    assert "4,000 patients" in page.markdown


def test_days_of_charges():
    assert records().days == (TODAY, TODAY) == messages().days
    assert Ledger(1.0).days == ("", "")
    assert "unused" in ledger_report(Ledger(1.0)).markdown
