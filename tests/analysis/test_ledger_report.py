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
def test_the_page_says_what_the_ledger_says(make):
    ledger = make()
    page = ledger_report(ledger, "l")
    assert page == ledger_report(Ledger.from_json(ledger.to_json()), "l")
    shown = html.unescape(re.sub(r"<[^>]*>", " ", page.split("</style>")[1]))
    for part in (digits_up(ledger.spent.epsilon), TODAY, "What is not protected"):
        assert part in shown
    for assumption in ledger.spent.assumptions:
        assert assumption[1:] in shown
    assert "<script" not in page


def test_names_are_text_and_every_run_has_its_row():
    page = ledger_report(records(), "name | <i>")
    assert "<i>" not in page
    row = next(line for line in page.splitlines() if "alert" in line)
    assert row.count("<td>") == 4
    assert "1 of 30" in row
    assert "2 of 30" in page
    assert "4,000 patients" in page


def test_days_of_charges():
    assert records().days == (TODAY, TODAY) == messages().days
    assert Ledger(1.0).days == ("", "")
