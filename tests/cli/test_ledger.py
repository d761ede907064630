"""``jopeq ledger``."""

import re

import numpy as np
import pytest

import jopeq
from jopeq.analysis.ledger_report import ledger_report


@pytest.fixture
def run(jopeq_command):
    return lambda *words: jopeq_command("ledger", *words)


def test_a_ledger_is_made_once_and_shown(run, tmp_path):
    path = tmp_path / "ledger.json"
    made = run("init", path, "--budget", 50, "--delta", 1e-6)
    assert made.exit_code == 0, made.output
    assert "Ledger(budget=50, delta=1e-06, spent=0, rounds=0)" in made.output
    again = run("init", path, "--budget", 5000)
    assert again.exit_code == 2
    assert "exists" in again.output
    kept = jopeq.Ledger.load(path)
    kept.encode(jopeq.scheme("laplace", epsilon=1.00001, clip=1.0), np.zeros(10))
    kept.save(path)
    shown, spent = run("show", path).output, "ε ≤ 10.01 of 50 at δ = 1e-06"
    for part in (spent, "rounds  1", "scheme  messages by the scheme “laplace”"):
        assert part in shown


def test_a_ledger_of_a_sum_says_how_many_rounds_are_left(run, tmp_path):
    kept = jopeq.Ledger.create(tmp_path / "ledger", 8.0, 1e-5)
    scheme = jopeq.ClientSum(epsilon=8.0, clip=1.0, clients=5, threshold=4, rounds=6)
    for _ in range(4):
        kept.charge(scheme, 100)
    kept.save(tmp_path / "ledger")
    shown = run("show", tmp_path / "ledger").output
    assert "of 8 for the client, 4 of 6 rounds" in shown
    assert "sums of 100 numbers over 4 to 5 clients" in " ".join(shown.split())


def test_rounds_of_records(run, tmp_path, monkeypatch):
    given = {"epsilon": 1.0, "clip": 1.0, "records": 100, "sampling": 1.0, "rounds": 3}
    scheme = jopeq.RecordSum(**given, clients=4, threshold=3)
    ledger = jopeq.Ledger.create(tmp_path / "ledger", 2.0, 1e-5)
    for _ in range(2):
        ledger.charge(scheme, 10)
    ledger.save(tmp_path / "ledger")
    monkeypatch.setenv("COLUMNS", "80")
    shown = run("show", tmp_path / "ledger").output
    assert re.search(r"ε = 0\.7\d+ of 2 for every patient, 2 of 3 rounds", shown)
    assert max(map(len, shown.splitlines())) <= 80
    for out in ("page", "page.html"):
        done = run("report", tmp_path / "ledger", "--out", tmp_path / out)
        assert done.exit_code == 0, done.output
    page = ledger_report(ledger, "ledger")
    assert (tmp_path / "page.html").read_text("utf-8") == page
    assert sorted(one.name for one in tmp_path.iterdir()) == ["ledger", "page.html"]
    assert run("report", tmp_path / "missing").exit_code == 2
    assert run("report", tmp_path / "ledger", "--out", tmp_path / "no" / "page").exit_code == 2


def test_names_of_runs_cannot_steer_a_terminal_or_a_page(run, tmp_path):
    """Names come from the server: escape sequences, line breaks and turned writing stay visible."""
    given = {"epsilon": 1.0, "clip": 1.0, "records": 100, "sampling": 1.0, "rounds": 3}
    scheme = jopeq.RecordSum(**given, clients=4, threshold=3)
    ledger = jopeq.Ledger.create(tmp_path / "ledger", 2.0, 1e-5)
    ledger.charge(scheme, 10, run="gone\x1b[2J\x9b2J\r\nε = 0 of 2\u202eé")
    ledger.save(tmp_path / "ledger")
    page = ledger_report(ledger, "ledger")
    for text in (run("show", tmp_path / "ledger").output, page):
        assert all(one.isprintable() for one in text.replace("\n", ""))
        assert text.replace("\\", "").count("gonex1b[2Jx9b2Jrnε = 0 of 2u202eé") == 1


def test_what_still_fits(run, tmp_path):
    jopeq.Ledger.create(tmp_path / "ledger", 2.0, 1e-5)
    words = ("plan", tmp_path / "ledger", "--rounds", 3, "--clients", 4)
    for more in ((), ("--records", 2000)):
        assert "ε ≤ 2 fits for 3 rounds" in run(*words, *more).output
    assert "--records" in run(*words, "--sampling", 0.5).output
    assert run("plan", tmp_path / "none", "--rounds", 3, "--clients", 4).exit_code == 2


def test_refusals(run, tmp_path):
    missing = run("show", tmp_path / "missing")
    assert missing.exit_code == 2
    assert "jopeq ledger init" in missing.output
    assert "budget must be" in run("init", tmp_path / "ledger", "--budget", 0).output
    assert "--budget" in run("init", tmp_path / "ledger").output
    assert "mkdir -p" in run("init", tmp_path / "none" / "ledger", "--budget", 4).output
    (tmp_path / "ledger").write_text("{}")
    assert "restore it from a backup" in run("show", tmp_path / "ledger").output


def test_an_unused_ledger_does_not_say_whom_it_protects(run, tmp_path):
    jopeq.Ledger.create(tmp_path / "ledger", 2.0, 1e-5)
    page = ledger_report(jopeq.Ledger.load(tmp_path / "ledger"), "ledger")
    assert "<td>Protected</td><td>nobody yet" in page
    assert "hospital or device" not in page
