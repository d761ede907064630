"""``jopeq plan``: the table, the JSON, the figure."""

import json
import re
from importlib import import_module

import pytest

from jopeq.analysis import tradeoff
from jopeq.analysis.plan import plan
from jopeq.cli.plan import as_dict

JOB = ("--epsilon", "4", "--rate", "2", "--dimension", "7850", "--rounds", "95")


@pytest.fixture(scope="module")
def rows():
    return plan(4.0, 2.0, dimension=7850, rounds=95)


@pytest.fixture
def run(monkeypatch, rows, jopeq_command):
    """The command, with the one plan of this file computed once."""

    def known(epsilon, rate, *, dimension, rounds, clients, delta):
        job = (epsilon, rate, dimension, rounds, clients, delta)
        if job == (4.0, 2.0, 7850, 95, 10, 1e-5):
            return rows
        return plan(epsilon, rate, dimension=dimension, rounds=rounds, clients=clients, delta=delta)

    monkeypatch.setattr(import_module("jopeq.cli.plan"), "make_plan", known)
    return lambda *options: jopeq_command("plan", *options)


def test_one_line_a_scheme(run, rows):
    result = run(*JOB)
    assert result.exit_code == 0
    assert "7,850 entries, 95 rounds, 10 clients" in result.stdout
    for heading in ("bits", "distortion", "bias", "ε asked", "ε sample", "ε update", "ε client"):
        assert heading in result.stdout
    for row in rows:
        lines = [
            line
            for line in result.stdout.splitlines()
            if re.search(rf"(^|\W){re.escape(row.scheme.name)}\s", line)
            and f"{row.payload_bytes:,}" in line
        ]
        assert lines, row.scheme
        assert f"{row.distortion:.4f}" in lines[0]


def test_what_an_epsilon_is_of(run, rows):
    lines = run(*JOB).stdout.splitlines()
    pairs = {line.split()[0] for line in lines if re.match(r"\s+\S+\s+pairs\s", line)}
    assert pairs == {"t", "l2", "gaussian"}
    sizes = {(row["name"], row["entries_per_sample"]) for row in map(as_dict, rows)}
    assert {("t", 2), ("t+sdq", 2), ("laplace", 1), ("response", 1), ("jopeq", 1)} <= sizes


def test_the_numbers_of_the_papers_scheme(run):
    text = run(*JOB).stdout
    line = next(line for line in text.splitlines() if re.search(r"jopeq\s+Z", line))
    assert re.findall(r"[-\d.,]+", line)[-4:-1] == ["4.00", "8.05", "63,130"]


def test_where_response_stands(run, rows):
    text = " ".join(run(*JOB).stdout.split())
    (row,) = [row for row in rows if row.scheme.name == "response"]
    assert f"over Gaussian entries {row.gaussian_distortion:.4f};" in text  # no gain to tell
    assert f"gets below {row.lower_bound:.4f}" in text
    at_three_bits = " ".join(run("--rate", "3", "--dimension", "10").stdout.split())
    assert re.search(r"\d\.\d% below the best randomized response", at_three_bits)


def test_json(run, rows):
    result = run(*JOB, "--json")
    assert result.exit_code == 0
    assert not re.search(r"\b(NaN|Infinity)\b", result.stdout)
    found = json.loads(result.stdout, parse_constant=pytest.fail)
    assert len(found) == len(rows)
    for printed, row in zip(found, rows, strict=True):
        assert printed["scheme"] == row.scheme.spec
        assert printed["distortion"] == row.distortion
        assert printed["payload_bytes"] == row.payload_bytes
        assert printed.keys() == as_dict(row).keys()
    bare = next(each for each in found if each["name"] == "none")
    assert bare["epsilon_per_sample"] is bare["epsilon_per_client"] is None


@pytest.fixture
def few_points(monkeypatch):
    points = tradeoff.tradeoff(epsilons=(1.0, 4.0), rates=(1.0, 2.0))
    monkeypatch.setattr(tradeoff, "tradeoff_around", lambda epsilon, rate: points)


@pytest.mark.parametrize(("suffix", "beginning"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_plot(suffix, beginning, run, few_points, tmp_path):
    path = tmp_path / f"figure.{suffix}"
    result = run(*JOB, "--plot", str(path))
    assert result.exit_code == 0
    assert path.read_bytes().startswith(beginning)
    assert path.stat().st_size > 10_000
    assert "saved" in result.stdout


def test_plot_and_json_print_json_alone(run, few_points, tmp_path):
    result = run(*JOB, "--json", "--plot", str(tmp_path / "figure.svg"))
    assert isinstance(json.loads(result.stdout), list)
    assert (tmp_path / "figure.svg").exists()


@pytest.mark.parametrize("name", ["missing/figure.png", "figure.xyz"])
def test_plot_to_nowhere(name, run, few_points, tmp_path):
    result = run(*JOB, "--plot", str(tmp_path / name))
    assert result.exit_code == 2
    assert "--plot cannot write" in " ".join(result.output.split())
    assert isinstance(result.exception, SystemExit)


def test_the_plot_is_of_the_epsilon_and_the_rate_asked_for(run, monkeypatch, tmp_path):
    few = tradeoff.tradeoff
    monkeypatch.setattr(tradeoff, "tradeoff", lambda epsilons, rates: few(epsilons, (1.0, 2.0)))
    path = tmp_path / "figure.svg"
    result = run(*JOB[2:], "--epsilon", "3", "--plot", str(path))
    assert result.exit_code == 0
    drawn = path.read_text()
    for epsilon in ("1.5", "3", "6"):
        assert f"ε = {epsilon} per entry" in drawn
    assert "dotted line: R = 2" in drawn


def test_plot_without_matplotlib(run, few_points, monkeypatch, tmp_path):
    def missing(path, points, *, marked):
        raise ModuleNotFoundError("No module named 'matplotlib'")

    monkeypatch.setattr(tradeoff, "save_tradeoff", missing)
    result = run(*JOB, "--plot", str(tmp_path / "figure.png"))
    assert result.exit_code == 2
    assert "jopeq[experiments]" in result.output


def test_secure_sums_when_asked(run):
    result = run(*JOB, "--sum", "--clients", "10")
    assert result.exit_code == 0
    assert "secure sums: 7,850 entries, each client in at most 95 rounds" in result.stdout
    assert re.search(r"From about [\d,]+ clients on", result.stdout)
    found = [row for row in json.loads(run(*JOB, "--sum", "--json").stdout) if row["name"] == "sum"]
    assert [row["clients"] for row in found] == [10, 30, 100, 300, 1000]
    for row in found:
        assert row["epsilon_per_client"] <= 4.0
        assert row["payload_bytes"] * 8 >= row["kept"] * row["bits"]
