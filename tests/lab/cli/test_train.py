"""``jopeq-lab train``."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
import typer

from jopeq_lab.cli import app
from jopeq_lab.cli.bars import LiveBar
from jopeq_lab.training import record
from jopeq_lab.training.config import HospitalsConfig, PeopleConfig, TrainConfig

SMALL = ["--data", "digits", "--clients", "4", "--rounds", "2", "-s", "local_steps=5"]


@pytest.fixture
def invoke(lab_command):
    return lambda *words: lab_command("train", *words)


def test_prints_a_table_and_divergence_is_an_error(invoke):
    done = invoke(*SMALL, "--scheme", "jopeq", "--epsilon", "4", "--rate", "1")
    assert done.exit_code == 0, done.output
    assert "10.12" in done.output  # ε proven
    assert "13,156" in done.output  # ε of a client: two updates of 650 entries
    done = invoke(*SMALL, "--model", "mlp", "-s", "lr=1e30")
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
    assert invoke(*SMALL, "--out", folder).exit_code == 2  # it holds a run
    resumed = invoke(*SMALL, "--out", folder, "--resume", "--rounds", "4")
    assert resumed.exit_code == 0, resumed.output
    assert len(record.read_rounds(tmp_path / "run" / record.ROUNDS)) == 4
    assert invoke(*SMALL, "--out", folder, "--resume", "-s", "lr=0.2").exit_code == 2


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
    "--scheme jopeq": "--rate must be given",
    "--scheme laplas": "laplace",
    "--clip tight": "--clip",
    "--scheme sphere --epsilon 8": "clip",
    "--clients 100000": "clients",
    "--resume": "resume needs out",
    "--seed 3 --seeds 2": "--seeds",
    "--scheme records --epsilon 1": "--hospitals",
    "--rate 2": "--rate is no setting",
    "--rounds-per-minute 3": "--rounds-per-minute",
    "nowhere.toml": "nowhere.toml",
    "-s center=0.1": "--people",
    "-s device=warp": "device",
    "-s data_dir=folder": "data_dir",
    "-s baseline=none": "--hospitals",
    "-s plateau_factor=0.3": "plateau_factor would not be read",
    "-s plateau_facto=0.3": "did you mean plateau_factor?",
    "-s lr=fast": "lr must be of type float, got 'fast'",
    "-s clients=3": "clients is given twice",
    "-s lr": "NAME=VALUE",
}


@pytest.mark.parametrize("options", BAD)
def test_mistakes_and_options_that_nothing_would_read_are_named(invoke, options):
    done = invoke(*SMALL, *options.split())
    assert done.exit_code == 2
    assert BAD[options] in done.output


BAD_FILES = {
    "json = true": "json",
    "seed = 'one'": "seed must be of type list",
    "seed = [[1]]": "seed must be whole numbers",
    "seeds = 0": "seeds must be at least 1",
    "centered = 1": "bool",
    "plateau_factor = 0.3": "client-plateau",
    "alpha = 0.5": "dirichlet",
    "checkpoint_every = 5": "--out",
    "examples = 2": "--people",
    "validation = true": "int",
    "people = 100\ncentered = true": "--people",
    "validation = 5000": "validation",
    "rounds = 2.5": "--rounds must be of type int, got 2.5",
    "rounds = ": "run.toml",
}


@pytest.mark.parametrize("text", BAD_FILES)
def test_mistakes_in_the_file_of_a_run_are_named(invoke, tmp_path, text):
    file = tmp_path / "run.toml"
    file.write_text(text)
    done = invoke(file, "--data", "digits")
    assert done.exit_code == 2, done.output
    assert BAD_FILES[text] in done.output


HOSPITALS = (
    *("--hospitals", 4, "--scheme", "records", "--epsilon", 4, "--data", "cancer"),
    *("-s", "features=table", "--clip", 0.8, "-s", "server_lr=1", "--rounds", 3),
)


def test_hospitals_train_through_shares_beside_baselines(invoke, tmp_path):
    out = tmp_path / "run"
    unequal = ("-s", "partition=dirichlet", "-s", "alpha=0.5")
    words = (*HOSPITALS, "--out", out, *unequal, "--json")
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
    assert not (out / record.CURVES).exists()  # nothing that it would show was measured
    assert invoke(*words, "--resume").exit_code == 0
    drawn = invoke(*HOSPITALS, "-s", "validation=40", "--out", tmp_path / "drawn")
    assert (tmp_path / "drawn" / record.CURVES).stat().st_size > 10_000
    assert f"saved {tmp_path / 'drawn'}" in drawn.output.replace("\n", "")
    file = tmp_path / "run.toml"
    file.write_text("test = 169")
    words = ("-s", "baseline=alone", "--seeds", 2, "-s", "records=300")
    table = invoke(file, *HOSPITALS, *words)
    assert table.exit_code == 0, table.output
    for said in ("baseline alone", "0.9", "4.00", "±", "300"):
        assert said in table.output


def test_the_help_shows_a_run_of_hospitals_that_works(invoke):
    text = " ".join(typer.main.get_command(app).commands["train"].help.split())
    line = re.search("jopeq-lab train (--hospitals.*?) jopeq-lab train", text)[1]
    done = invoke(*line.split(), "--rounds", 2, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(json.loads(done.stdout)[0]["config"]["scheme"])[1]["clip"] == 1.0


@pytest.mark.parametrize(
    "options",
    [
        *("-s baseline=nobody", "-s threshold=5", "-s sampling=1.5", "-s records=0"),
        *("-s alpha=0 -s partition=dirichlet", "-s lr=0.2", "-s features=hog -s features=rows"),
        *("--scheme sphere", "--rate 2", "--people 10", "--clients 3", "--hospitals 2"),
    ],
)
def test_mistakes_of_hospitals_are_named(invoke, options):
    done = invoke(*HOSPITALS, *options.split())
    assert done.exit_code == 2, done.output
    assert re.search("(?:-s |--)([a-z]+)", options)[1] in done.output


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
levels = "odd"
schedule = "client-plateau"
plateau_factor = 0.3
validation = 50
checkpoint_every = 1
"""


def test_the_file_of_a_run_and_the_options_that_win_over_it(invoke, tmp_path):
    file, folder = tmp_path / "mine.toml", tmp_path / "run"
    file.write_text(FILE)
    words = (file, "--out", folder, "--json")
    done = invoke(*words, "--rounds", "2", "-s", "local_steps=3")
    assert done.exit_code == 0, done.output
    (result,) = json.loads(done.stdout)
    found = result["config"]
    given = {"clients": 3, "rounds": 2, "seed": 4, "local_steps": 3}
    given |= {"plateau_factor": 0.3, "validation": 50, "schedule": "client-plateau"}
    assert given.items() <= found.items()
    assert json.loads(found["scheme"])[1].items() >= {"clip": 0.2, "levels": "odd"}.items()
    resumed = invoke(*words, "--resume", "--rounds", "3", "-s", "local_steps=3")
    assert resumed.exit_code == 0, resumed.output
    assert {**found, "rounds": 3} == json.loads(resumed.stdout)[0]["config"]


def test_the_page_of_commands_lists_every_setting():
    options = {one.name for one in typer.main.get_command(app).commands["train"].params}
    page = (Path(__file__).parents[3] / "docs" / "commands.md").read_text("utf-8")
    kinds = (TrainConfig, PeopleConfig, HospitalsConfig)
    for name in {field.name for kind in kinds for field in fields(kind)} - options:
        assert f"`{name}`" in page, name


def test_people_have_an_epsilon_of_their_own(invoke, tmp_path):
    words = ["--data", "digits", "--people", "300", "--rounds", "3", "-s", "features=pixels"]
    words += ["--scheme", "sphere", "--epsilon", "8", "--clip", "0.5", "-s", "draws=4096"]
    done = invoke(*words, "--out", str(tmp_path), "-s", "threads=1", "--json")
    assert done.exit_code == 0, done.output
    (result,) = json.loads(done.stdout)
    assert result["epsilon"] <= 8.0
    assert (result["reports"], result["refused"]) == (300, 0)
    assert (tmp_path / record.SUMMARY).exists()
    table = invoke(*words[:8], "--scheme", "central", "--epsilon", "4", "--clip", "0.5")
    assert table.exit_code == 0, table.output
    assert "ε of a person" in table.output
    summed = invoke(*words[:8], "--scheme", "clients", "--epsilon", "8", "--clip", "0.5")
    assert summed.exit_code == 0, summed.output
    assert "8.00" in summed.output
    for bad in (["--clients", "3"], ["--clip", "tight"]):
        assert invoke(*words, *bad).exit_code == 2
    assert "--clip" in invoke(*words[:8], "--scheme", "clients", "--epsilon", "4").output
