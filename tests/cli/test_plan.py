"""``jopeq plan``: the table, the JSON, the figure."""

import json
from importlib import import_module

import pytest

from jopeq.analysis.plan import plan

JOB = ("--epsilon", "4", "--rate", "2", "--dimension", "7850", "--rounds", "95")


@pytest.fixture(scope="module")
def rows():
    found = plan(4.0, rate=2.0, dimension=7850, rounds=95, clients=10)
    return [row for row in found if row.unit == "sample"]


@pytest.fixture
def run(monkeypatch, rows, jopeq_command):
    """The command, with the one plan of this file computed once for all rounds and clients."""

    def known(epsilon, *, dimension, rate=None, **others):
        if (epsilon, rate, dimension) == (4.0, 2.0, 7850):
            return [*plan(epsilon, dimension=dimension, **others), *rows]
        return plan(epsilon, dimension=dimension, rate=rate, **others)

    monkeypatch.setattr(import_module("jopeq.cli.plan"), "make_plan", known)
    return lambda *options: jopeq_command("plan", *options)


def test_the_short_answer_fits_eighty_columns(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for clients, said in (
        (10, "none: at this ε"),
        (1000, "take clients"),
        (1_000_000, "take sphere"),
    ):
        result = run(*JOB[:6], "--clients", clients)
        assert max(map(len, result.stdout.splitlines())) <= 80
        assert f"Recommended: {said}" in result.stdout
    assert result.stdout.index(" response ") < result.stdout.index(" mvu ")  # by error


def test_the_recommendation_follows_the_learning_rule(run):
    def verdicts(clients, rounds):
        job = ("--clients", clients, "--rounds", rounds, "--dimension", "7850", "--json")
        rows = json.loads(run(*job).stdout)
        return {row["name"]: row["verdict"] for row in rows if "verdict" in row}

    assert verdicts(100, 1) == {"sphere": "noise", "clients": "loses much"}
    assert verdicts(1000, 1) == {"sphere": "loses much", "clients": "learns"}
    assert verdicts(10, 20) == {"sphere": "noise", "clients": "noise"}


def test_json(run, rows):
    result = run(*JOB, "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout, parse_constant=pytest.fail)
    people = [row["name"] for row in found if row["unit"] == "client"]
    assert people == ["sphere", "clients"]
    found = [row for row in found if row["name"] not in people]
    for printed, row in zip(found, rows, strict=True):
        told = printed["scheme"], printed["distortion"], printed["payload_bytes"]
        assert told == (row.scheme.spec, row.distortion, row.payload_bytes)
        assert printed.keys() == row.as_dict().keys()
    bare = next(each for each in found if each["name"] == "none")
    assert bare["per_sample"] is bare["per_client"] is None


def test_records_get_rounds_sampling_and_enough_patients(jopeq_command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    job = ("plan", "--records", 4000, "--clients", 10, "--epsilon", 1, "--dimension", 5210)
    said = jopeq_command(*job, "--rounds", 30)
    assert said.exit_code == 0, said.output
    assert max(map(len, said.stdout.splitlines())) <= 80
    (row,) = json.loads(jopeq_command(*job, "--rounds", 30, "--json").stdout)
    assert f"{row['records_enough']:,} patients would be enough" in said.stdout
    assert row["records_enough"] > 4000
    assert row["epsilon"] <= 1.0
    enough = ("plan", "--records", row["records_enough"], *job[3:], "--rounds", 30, "--json")
    (better,) = json.loads(jopeq_command(*enough).stdout)
    assert (row["verdict"], better["verdict"]) == ("loses some", "learns")
    for words in (("--rate", 2), ("--clients", 2), ("--rounds", 0)):
        refused = jopeq_command(*job, *words)
        assert refused.exit_code == 2
        assert f"{words[0]} " in refused.output
        assert "threshold" not in refused.output


def test_records_that_only_a_small_sample_can_plan(jopeq_command):
    job = ("plan", "--records", 10**6, "--epsilon", 0.3, "--dimension", 10**7, "--json")
    (row,) = json.loads(jopeq_command(*job, "--rounds", 400).stdout)
    assert (row["sampling"] < 1.0, row["epsilon"] <= 0.3) == (True, True)


@pytest.mark.parametrize("records", [11_800, 12_000, 12_300])
def test_a_run_that_learns_has_enough_patients(jopeq_command, records):
    job = ("plan", "--records", records, "--epsilon", 1, "--rounds", 1)
    (row,) = json.loads(jopeq_command(*job, "--json").stdout)
    assert (row["verdict"] == "learns") == (row["records_enough"] <= records)
