"""``jopeq train``."""

import json
import re
from dataclasses import fields
from importlib import import_module

import pytest

from jopeq.cli.output import LiveBar
from jopeq.cli.stopping import COMMAND
from jopeq.lab.training import record, simulation
from jopeq.lab.training.config import TrainConfig

SMALL = ["--data", "digits", "--clients", "4", "--rounds", "2", "--local-steps", "5"]


@pytest.fixture
def invoke(jopeq_command):
    return lambda *words: jopeq_command("train", *words)


def test_prints_a_table_and_divergence_is_an_error(invoke):
    done = invoke(*SMALL, "--scheme", "jopeq", "--epsilon", "4", "--rate", "1")
    assert done.exit_code == 0, done.output
    assert "10.12" in done.output  # ε proven
    assert "6,578" in done.output  # ε of an update of 650 entries
    done = invoke(*SMALL, "--model", "mlp", "--lr", "1e30")
    assert done.exit_code == 1
    assert "diverged" in done.output


def test_json_has_every_option(invoke):
    options = ["--scheme", "response", "--epsilon", "4", "--rate", "2", "--spread", "auto"]
    options += ["--clip", "0.05", "--partition", "dirichlet", "--alpha", "0.7", "--seed", "3"]
    options += ["--participation", "0.5", "--server-lr", "0.9", "--schedule", "theorem"]
    done = invoke(*SMALL, *options, "--json")
    assert done.exit_code == 0, done.output
    (result,) = json.loads(done.stdout)
    given = {"clip": 0.05, "alpha": 0.7, "seed": 3, "schedule": "theorem", "server_lr": 0.9}
    assert given.items() <= result["config"].items()
    assert '"clip":0.05' in result["config"]["scheme"]
    assert result["last_round"]["participants"] == 2
    assert 0.0 < result["test_accuracy"] <= 1.0


def test_several_seeds_have_mean_and_spread(invoke, tmp_path):
    done = invoke(*SMALL, "--seeds", "2", "--out", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert "±" in done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == [COMMAND, "seed-0", "seed-1"]


def test_out_and_resume(invoke, tmp_path):
    folder = str(tmp_path / "run")
    assert invoke(*SMALL, "--out", folder).exit_code == 0
    written = record.CONFIG, record.ROUNDS, record.TABLE, record.SUMMARY, record.CURVES
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {*written, record.CHECKPOINT, COMMAND}
    again = invoke(*SMALL, "--out", folder)
    assert again.exit_code == 2
    assert "already holds a run" in again.output
    resumed = invoke("--resume", folder, "--rounds", "4")
    assert resumed.exit_code == 0, resumed.output
    assert len(record.read_rounds(tmp_path / "run" / record.ROUNDS)) == 4
    assert invoke("--resume", folder, "--lr", "0.2").exit_code == 2


def test_a_folder_does_not_choose_code_or_another_folder(invoke, tmp_path):
    (tmp_path / COMMAND).write_text('["--model", "os.path:abspath"]')
    assert "would run the code of 'os.path:abspath'" in invoke("--resume", tmp_path).output
    assert "--out would not be read" in invoke("--resume", tmp_path, "--out", "other").output
    (tmp_path / COMMAND).write_text('{"--model": 1}')
    assert "no list of options" in invoke("--resume", tmp_path).output


def test_a_stopped_run_says_how_to_go_on(invoke, monkeypatch, tmp_path):
    moved = LiveBar.move

    def stop(self, done, *rest):
        moved(self, done, *rest)
        if done == 2:
            raise KeyboardInterrupt

    folder = tmp_path / "run"
    words = [*SMALL, "--rounds", "3", "--checkpoint-every", "1", "--out", folder]
    monkeypatch.setattr(LiveBar, "move", stop)
    stopped = invoke(*words)
    assert stopped.exit_code == 130
    assert "stopped after round 1 of 3" in stopped.output
    assert f"jopeq train --resume {folder}" in stopped.output
    monkeypatch.setattr(LiveBar, "move", moved)
    assert invoke("--resume", folder).exit_code == 0
    assert len(record.read_rounds(folder / record.ROUNDS)) == 3


def test_nothing_is_trained_when_a_folder_is_taken_or_cannot_be(invoke, tmp_path):
    taken = tmp_path / "seed-1" / record.ROUNDS
    taken.parent.mkdir()
    taken.touch()
    for out, more, words in (
        (tmp_path, ["--seeds", "3"], "already holds a run"),
        (taken, [], "cannot be written"),
        (taken / "run", [], "cannot be written"),
    ):
        done = invoke(*SMALL, *more, "--out", str(out))
        assert done.exit_code == 2, done.output
        assert words in done.output
        assert [path.name for path in tmp_path.iterdir()] == ["seed-1"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "letters"], "must be one of digits"),
        (["--model", "transformer"], "model must be one of"),
        (["--scheme", "jopeq"], "needs epsilon"),
        (["--clip", "tight"], "--clip must be a number"),
        (["--scheme", "sphere", "--epsilon", "8", "--clip", "adaptive"], "give --clip a number"),
        (["--scheme", "sphere", "--epsilon", "8"], "sphere needs clip"),
        (["--clients", "100000"], "number of samples"),
        (["--resume", "nowhere"], "holds no run"),
        (["--data-dir", "folder"], "--data-dir 'folder' would not be read"),
        (["--validation", "2000"], "validation count must be"),
        (["--device", "warp"], "device must be"),
        (["--clip-epsilon", "1.0"], "--clip-epsilon would not be read: it is for --clip adaptive"),
        (["--plateau-patience", "5"], "--plateau-patience .* for --schedule plateau"),
        (["--convexity", "1"], "--convexity .* for --schedule theorem"),
        (["--schedule", "theorem", "--lr", "0.1"], "--lr .* for --schedule constant or plateau"),
        (["--alpha", "0.5"], "--alpha .* for --partition dirichlet"),
        (["--shards-per-client", "2"], "--shards-per-client .* for --partition shards"),
        (["--seed", "3", "--seeds", "2"], "--seeds .* for runs without --seed"),
        (["--checkpoint-every", "5"], "--checkpoint-every .* for runs with --out"),
    ],
)
def test_mistakes_and_options_that_nothing_would_read_are_named(invoke, options, message):
    done = invoke(*SMALL, *options)
    assert done.exit_code == 2
    assert re.search(message, done.output)


def test_every_setting_of_a_run_can_be_given(invoke, monkeypatch):
    """Each option reaches the configuration, and each field of the configuration has an option."""
    values = {
        "spread": 2.5, "rotate": True, "clip": "adaptive", "initial_clip": 0.3,
        "clip_epsilon": 0.7, "clip_quantile": 0.4, "clip_learning_rate": 0.25, "model": "mlp",
        "data": "digits", "centered": True, "partition": "shards", "alpha": 0.6,
        "shards_per_client": 3, "clients": 4, "participation": 0.75, "rounds": 6,
        "local_steps": 2, "batch_size": 5, "lr": 0.05, "momentum": 0.4, "schedule": "plateau",
        "keep_momentum": True,
        "plateau_factor": 0.3, "plateau_patience": 2, "convexity": 1.5, "smoothness": 3.5,
        "server_lr": 0.9, "validation": 50, "client_chunk": 2, "compile": "off", "threads": 1,
        "checkpoint_every": 3, "tf32": True,
    }  # fmt: skip
    apart = {"scheme", "seed", "noise_key", "data_dir", "device"}  # tried in other tests
    assert set(values) | apart == {field.name for field in fields(TrainConfig)}
    seen = []

    def spy(**options):
        seen.append(options)
        raise ValueError("enough")

    monkeypatch.setattr(simulation, "TrainConfig", spy)
    # some of them exclude each other; here all are given at once
    monkeypatch.setattr(import_module("jopeq.cli.train"), "refuse_unread", lambda *_: None)
    arguments = ["--scheme", "sdq", "--rate", "2"]
    for name, value in values.items():
        option = "--" + name.replace("_", "-")
        arguments += [option] if value is True else [option, str(value)]
    result = invoke(*arguments)
    assert "enough" in result.output
    assert {name: seen[0][name] for name in values} == values


def test_a_scheme_of_whole_updates_gets_its_clip(invoke):
    words = ["--scheme", "sphere", "--epsilon", "8", "--clip", "0.5", "-p", "draws=4096"]
    done = invoke(*SMALL, *words, "--json")
    assert done.exit_code == 0, done.output
    assert '\\"clip\\":0.5' in done.stdout


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
    for bad in (["--clients", "3"], ["--clip", "adaptive"]):
        assert invoke(*words, *bad).exit_code == 2
    assert "it is for --people" in invoke("--center", "0.1").output
    sums = invoke(*words[:8], "--scheme", "sum", "--epsilon", "4")
    assert "scheme 'sum' needs --clip VALUE" in sums.output
