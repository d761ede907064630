"""``jopeq audit``, as a table and as JSON."""

import json

import pytest

from jopeq.analysis import audit as library
from jopeq.analysis.empirical import EmpiricalEpsilon


@pytest.fixture
def run(jopeq_command):
    return lambda *options: jopeq_command("audit", "--draws", "20000", *options)


def line_of(text, beginning):
    return next(line for line in text.splitlines() if beginning in line)


def test_the_table(run):
    result = run("--epsilon", "4", "--rate", "1")  # jopeq is the default
    assert result.exit_code == 0
    for beginning, said in (("nominal", "4.00"), ("exact", "10.12"), ("proven", "10.12")):
        assert said in line_of(result.stdout, beginning)
    assert "20,000 draws, 95% confidence" in line_of(result.stdout, "shown")
    assert "do not use" not in result.stdout
    nothing = run("--scheme", "sdq", "--rate", "2").stdout
    assert " - " in line_of(nothing, "nominal")
    assert " none " in line_of(nothing, "exact")


def test_json_has_null_for_infinity(run):
    result = run("--scheme", "jopeq", "--epsilon", "4", "--rate", "1", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout, parse_constant=pytest.fail)
    assert json.loads(found["scheme"]) == ["jopeq", {"epsilon": 4.0, "rate": 1.0}]
    plain = {"unit": "sample", "nominal": 4.0, "delta": 0.0, "consistent": True}
    assert plain.items() <= found.items()
    assert found["exact"]["server"] == pytest.approx(10.119288512538814)
    assert found["exact"]["decoded"] == found["exact"]["server"]
    assert found["exact"]["network"] < 3
    assert found["empirical"]["draws"] == 20_000
    assert 0 < found["empirical"]["lower"] <= found["proven"]
    assert "dither" in found["explanation"]
    public = json.loads(run("--scheme", "sdq", "--rate", "2", "--json").stdout)
    assert public["nominal"] is public["proven"] is None
    assert public["exact"] == {"server": None, "decoded": None, "network": None}


def test_a_broken_scheme_fails_the_command(run, monkeypatch):
    def attack(built, *, draws, confidence, noise):
        return EmpiricalEpsilon(9.0, 8.0, confidence, draws, "a lucky guess")

    monkeypatch.setattr(library, "empirical_epsilon", attack)
    result, as_json = (
        run("--scheme", "laplace", "--epsilon", 2, *more) for more in ((), ["--json"])
    )
    assert result.exit_code == as_json.exit_code == 1
    assert "The attack did better than the proof allows: do not use this." in result.stdout
    assert json.loads(as_json.stdout)["consistent"] is False


CLIENTS = {"clients": 5, "clip": 1.0, "epsilon": 4.0, "threshold": 4}
RECORDS = {"clients": 4, "clip": 1.0, "epsilon": 4.0, "records": 1000, "threshold": 3}


@pytest.mark.parametrize(
    ("words", "unit", "terms"),
    [
        (["clients"], "client", CLIENTS),
        (["clients", "-p", "clients=4"], "client", CLIENTS | {"clients": 4}),
        (
            ["records", "-p", "rounds=2", "-p", "sampling=0.5"], "record",
            RECORDS | {"rounds": 2, "sampling": 0.5},
        ),
    ],
)  # fmt: skip
def test_real_sums_are_attacked_too(run, words, unit, terms):
    words = ("--draws", "100000", "--confidence", "0.999999", "--scheme", *words)
    result = run("--epsilon", "4", *words)
    assert result.exit_code == 0, result.output
    for beginning in ("nominal", "proven", "estimated", "shown", "Holds if"):
        assert line_of(result.stdout, beginning)
    found = json.loads(run("--epsilon", "4", *words, "--json").stdout)
    assert json.loads(found["scheme"])[1] == terms
    assert found["empirical"]["lower"] < found["estimated"] <= found["proven"] <= 4.0
    assert found["estimated"] > 0.8 * found["proven"]
    assert (found["unit"], found["consistent"]) == (unit, True)
