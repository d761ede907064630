"""``jopeq audit``, as a table and as JSON."""

import json
import math
import re

import pytest

from jopeq import scheme
from jopeq.analysis import audit as library
from jopeq.analysis.empirical import EmpiricalEpsilon
from jopeq.cli.audit import as_dict


@pytest.fixture
def run(jopeq_command):
    return lambda *options: jopeq_command("audit", "--draws", "20000", *options)


def line_of(text, beginning):
    return next(line for line in text.splitlines() if beginning in line)


def test_the_papers_scheme(run):
    result = run("--scheme", "jopeq", "--epsilon", "4", "--rate", "1")
    assert result.exit_code == 0
    assert "4.00" in line_of(result.stdout, "nominal")
    assert "10.12" in line_of(result.stdout, "exact")
    assert "10.12" in line_of(result.stdout, "proven")
    assert "20,000 draws, 95% confidence" in line_of(result.stdout, "shown")
    assert (
        "Dither and noise together have the target's standard deviation 0.707, but the decoded "
        "value gives the dither away" in " ".join(result.stdout.split())
    )
    assert "do not use" not in result.stdout


def test_jopeq_is_the_default(run):
    assert "10.12" in run("--epsilon", "4", "--rate", "1").stdout


def test_no_privacy_is_called_none(run):
    result = run("--scheme", "sdq", "--rate", "2")
    assert result.exit_code == 0
    assert " - " in line_of(result.stdout, "nominal")
    assert " none " in line_of(result.stdout, "exact")
    assert "No noise is added" in result.stdout


def test_lattices_have_the_proof_alone(run):
    result = run("--scheme", "jopeq", "--epsilon", "3", "--rate", "2", "--lattice", "A2")
    assert result.exit_code == 0
    assert "the proven bound stands" in line_of(result.stdout, "exact")


def test_delta_is_told(run):
    result = run("--scheme", "gaussian", "--epsilon", "4")
    assert "at δ = 1e-05" in result.stdout


def test_json(run):
    result = run("--scheme", "jopeq", "--epsilon", "4", "--rate", "1", "--json")
    assert result.exit_code == 0
    assert not re.search(r"\b(NaN|Infinity)\b", result.stdout)
    found = json.loads(result.stdout)
    assert json.loads(found["scheme"]) == ["jopeq", {"epsilon": 4.0, "rate": 1.0}]
    assert found["unit"] == "sample"
    assert found["nominal"] == 4.0
    assert found["exact"]["server"] == pytest.approx(10.119288512538814)
    assert found["exact"]["decoded"] == found["exact"]["server"]
    assert found["exact"]["network"] < 3
    assert found["empirical"]["draws"] == 20_000
    assert 0 < found["empirical"]["lower"] <= found["proven"]
    assert found["delta"] == 0.0
    assert found["consistent"] is True
    assert "dither" in found["explanation"]


def test_json_of_infinity_is_null(run):
    found = json.loads(run("--scheme", "sdq", "--rate", "2", "--json").stdout)
    assert found["nominal"] is None
    assert found["proven"] is None
    assert found["exact"] == {"server": None, "decoded": None, "network": None}


def test_as_dict_keeps_infinity_for_python():
    report = library.audit(scheme("sdq", rate=1.0), draws=1000)
    assert as_dict(report)["proven"] == math.inf
    assert as_dict(report)["empirical"]["event"] == report.empirical.event


def test_a_broken_scheme_fails_the_command(run, monkeypatch):
    def attack(built, *, draws, confidence, noise):
        return EmpiricalEpsilon(9.0, 8.0, confidence, draws, "a lucky guess")

    monkeypatch.setattr(library, "empirical_epsilon", attack)
    result = run("--scheme", "laplace", "--epsilon", "2")
    assert result.exit_code == 1
    assert "The attack did better than the proof allows: do not use this." in result.stdout
    as_json = run("--scheme", "laplace", "--epsilon", "2", "--json")
    assert as_json.exit_code == 1
    assert json.loads(as_json.stdout)["consistent"] is False


SUM = ("--scheme", "sum", "--epsilon", "4", "-p", "clip=1", "-p", "clients=4", "-p", "threshold=3")


def test_sums_are_audited_too(run):
    result = run(*SUM)
    assert result.exit_code == 0
    for beginning in ("nominal", "proven", "exact", "shown", "Mind: a client's updates"):
        assert line_of(result.stdout, beginning)
    found = json.loads(run(*SUM, "--json").stdout)
    assert found["empirical"]["lower"] < found["exact"] <= found["proven"] <= 4.0
    assert (found["unit"], found["consistent"]) == ("client", True)
