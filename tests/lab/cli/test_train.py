"""``jopeq train``."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
import typer

from jopeq.cli import app
from jopeq.cli.output import LiveBar
from jopeq_lab.training import record
from jopeq_lab.training.config import TrainConfig

SMALL = ["--data", "digits", "--clients", "4", "--rounds", "2", "--local-steps", "5"]


@pytest.fixture
def invoke(jopeq_command):
    return lambda *words: jopeq_command("train", *words)


def test_prints_a_table_and_divergence_is_an_error(invoke):
    done = invoke(*SMALL, "--scheme", "jopeq", "--epsilon", "4", "--rate", "1")
    assert done.exit_code == 0, done.output
    assert "10.12" in done.output  # ε proven
    assert "13,156" in done.output  # ε of a client: two updates of 650 entries
    done = invoke(*SMALL, "--model", "mlp", "--lr", "1e30")
    assert done.exit_code == 1
    assert "diverged" in done.output


def test_several_seeds_have_mean_and_spread(invoke, tmp_path):
    done = invoke(*SMALL, "--seeds", "2", "--out", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert "±" in done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["seed-0", "seed-1"]


def test_out_and_resume(invoke, tmp_path):
    folder = str(tmp_path / "run")
    assert invoke(*SMALL, "--out", folder).exit_code == 0
    written = record.CONFIG, record.ROUNDS, record.SUMMARY, record.CURVES
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {*written, record.CHECKPOINT}
    again = invoke(*SMALL, "--out", folder)
    assert again.exit_code == 2
    assert "already holds a run" in again.output
    resumed = invoke(*SMALL, "--out", folder, "--resume", "--rounds", "4")
    assert resumed.exit_code == 0, resumed.output
    assert len(record.read_rounds(tmp_path / "run" / record.ROUNDS)) == 4
    assert invoke(*SMALL, "--out", folder, "--resume", "--lr", "0.2").exit_code == 2


def test_a_stopped_run_says_how_to_go_on(invoke, monkeypatch, tmp_path):
    moved = LiveBar.move

    def stop(self, done, *rest):
        moved(self, done, *rest)
        if done == 2:
            raise KeyboardInterrupt

    folder = tmp_path / "run"
    words = [*SMALL, "--rounds", "3", "--out", folder]
    monkeypatch.setattr(LiveBar, "move", stop)
    stopped = invoke(*words)
    assert stopped.exit_code == 130
    assert "stopped; --resume goes on" in stopped.output
    monkeypatch.setattr(LiveBar, "move", moved)
    assert invoke(*words, "--resume").exit_code == 0
    assert len(record.read_rounds(folder / record.ROUNDS)) == 3


BAD = {  # options, and what the error names
    "--data letters": "digits",
    "--model transformer": "model",
    "--scheme jopeq": "epsilon",
    "--clip tight": "--clip",
    "--scheme sphere --epsilon 8": "clip",
    "--center 0.1": "--center",
    "--clients 100000": "clients",
    "--resume": "--resume needs out",
    "--device warp": "device",
    "--data-dir folder": "--data-dir",
    "--seed 3 --seeds 2": "--seeds",
    "--scheme records --epsilon 1": "--hospitals",
    "--baseline none": "--hospitals",
    "--plateau-factor 0.3": "--plateau-factor",
    "--config nowhere.toml": "nowhere.toml",
    "--rounds-per-minute 3": "--rounds-per-minute",
}


@pytest.mark.parametrize("options", BAD)
def test_mistakes_and_options_that_nothing_would_read_are_named(invoke, options):
    done = invoke(*SMALL, *options.split())
    assert done.exit_code == 2
    assert BAD[options] in done.output


BAD_FILES = {
    "plateau_facto = 0.3": "plateau_factor?",
    "json = true": "json",
    "centered = 1": "bool",
    "plateau_factor = 0.3": "client-plateau",
    "alpha = 0.5": "dirichlet",
    "checkpoint_every = 5": "--out",
    "examples = 2": "--people",
    "validation = true": "int",
    "people = 100\ncentered = true": "--people",
    "validation = 5000": "validation",
    "rounds = 2.5": "2.5",
    "rounds = ": "run.toml",
}


@pytest.mark.parametrize("text", BAD_FILES)
def test_mistakes_in_the_file_of_a_run_are_named(invoke, tmp_path, text):
    file = tmp_path / "run.toml"
    file.write_text(text)
    done = invoke("--data", "digits", "--config", file)
    assert done.exit_code == 2, done.output
    assert BAD_FILES[text] in done.output


HOSPITALS = (
    *("--hospitals", 4, "--scheme", "records", "--epsilon", 4, "--data", "cancer"),
    *("--features", "table", "--clip", 0.8, "--server-lr", 1, "--rounds", 3),
)


def test_hospitals_train_through_shares_beside_baselines(invoke, tmp_path):
    out, board = tmp_path / "run", tmp_path / "board"
    words = (*HOSPITALS, "--out", out, "--tensorboard", board, "--dirichlet", 0.5, "--json")
    done = invoke(*words)
    assert done.exit_code == 0, done.output
    (result,) = json.loads(done.stdout)
    scheme = json.loads(result["config"]["scheme"])[1]
    assert scheme == {
        "clients": 4, "clip": 0.8, "epsilon": 4.0, "records": 456, "rounds": 3, "sampling": 1.0,
        "threshold": 3,
    }  # fmt: skip
    assert result["test_auc"] > 0.8
    assert 3.9 < result["epsilon"] <= 4.0
    assert result["config"]["partition"] == "dirichlet"
    assert len(set(result["hospitals"] * [0] + result["records"])) > 1
    assert any(board.iterdir())
    assert invoke(*words, "--resume").exit_code == 0
    file = tmp_path / "run.toml"
    file.write_text("test = 169")
    words = ("--config", file, "--baseline", "alone", "--seeds", 2, "-p", "records=300")
    table = invoke(*HOSPITALS, *words)
    assert table.exit_code == 0, table.output
    for said in ("baseline alone", "0.9", "4.00", "±", "300"):
        assert said in table.output


def test_the_help_shows_a_run_of_hospitals_that_works(invoke):
    text = " ".join(typer.main.get_command(app).commands["train"].help.split())
    line = re.search("jopeq train (--hospitals.*?) jopeq train", text)[1]
    done = invoke(*line.split(), "--rounds", 2, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(json.loads(done.stdout)[0]["config"]["scheme"])[1]["clip"] == 1.0


@pytest.mark.parametrize(
    "options",
    [
        *("--baseline nobody", "-p threshold=5", "-p sampling=1.5", "-p records=0", "--rounds 0"),
        *("--dirichlet 0", "--clip tight", "--scheme sphere", "--rate 2", "--people 10"),
        *("--lr 0.2", "--clients 3", "--features hog", "--hospitals 2"),
    ],
)
def test_mistakes_of_hospitals_are_named(invoke, options):
    done = invoke(*HOSPITALS, *options.split())
    assert done.exit_code == 2, done.output
    name = re.search("(?:-p |--)([a-z]+)", options)[1]
    assert {"dirichlet": "alpha"}.get(name, name) in done.output


FILE = """
data = "digits"
clients = 3
rounds = 5
local_steps = 2
seed = [4]
scheme = "jopeq"
epsilon = 4
rate = 2
clip = 0.2
parameter = {coding = "entropy"}
schedule = "client-plateau"
plateau_factor = 0.3
validation = 50
checkpoint_every = 1
"""


def test_the_file_of_a_run_and_the_options_that_win_over_it(invoke, tmp_path):
    file, folder = tmp_path / "mine.toml", tmp_path / "run"
    file.write_text(FILE)
    words = ("--config", file, "--out", folder, "--json")
    done = invoke(*words, "--rounds", "2")
    assert done.exit_code == 0, done.output
    (result,) = json.loads(done.stdout)
    found = result["config"]
    given = {"clients": 3, "rounds": 2, "seed": 4, "clip": 0.2}
    given |= {"plateau_factor": 0.3, "validation": 50, "schedule": "client-plateau"}
    assert given.items() <= found.items()
    assert '"coding":"entropy"' in found["scheme"]
    resumed = invoke(*words, "--resume", "--rounds", "3")
    assert resumed.exit_code == 0, resumed.output
    assert {**found, "rounds": 3} == json.loads(resumed.stdout)[0]["config"]


def test_the_help_shows_the_defaults_of_a_run_and_the_page_its_other_keys():
    command = typer.main.get_command(app).commands["train"]
    defaults = {field.name: field.default for field in fields(TrainConfig)}
    for option in command.params:
        if option.name in defaults and option.name != "seed":
            assert option.default == defaults[option.name], option.name
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
    for name in {*defaults, "examples", "decay", "average"}:
        is_option = name in {option.name for option in command.params}
        assert is_option or f"`{name}`" in page, name


def test_people_have_an_epsilon_of_their_own(invoke, tmp_path):
    words = ["--data", "digits", "--people", "300", "--rounds", "3", "--features", "pixels"]
    words += ["--scheme", "sphere", "--epsilon", "8", "--clip", "0.5", "-p", "draws=4096"]
    done = invoke(*words, "--out", str(tmp_path), "--threads", "1", "--json")
    assert done.exit_code == 0, done.output
    (result,) = json.loads(done.stdout)
    assert result["epsilon"] <= 8.0
    assert (result["reports"], result["refused"]) == (300, 0)
    assert (tmp_path / record.SUMMARY).exists()
    table = invoke(*words[:8], "--scheme", "central", "--epsilon", "4", "--clip", "0.5")
    assert table.exit_code == 0, table.output
    assert "ε of a person" in table.output
    for bad in (["--clients", "3"], ["--clip", "tight"]):
        assert invoke(*words, *bad).exit_code == 2
    assert "--clip" in invoke(*words[:8], "--scheme", "sum", "--epsilon", "4").output
