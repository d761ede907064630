"""``jopeq-lab attack``: what it prints and draws, and what it refuses before any work is done."""

import json
import sys
import types
from importlib import import_module

import pytest
from torch import nn

from jopeq_lab.cli.attack import check_out

attack = import_module("jopeq_lab.cli.attack")  # the module, not the command
SMALL = ["--iterations", "1", "--threads", "1"]


def dense(input_shape, classes):
    """A model of one's own, found by its import path."""
    channels, height, width = input_shape
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, classes))


def frozen(input_shape, classes):
    return dense(input_shape, classes).requires_grad_(False)


@pytest.fixture
def run(monkeypatch, lab_command):
    module = types.ModuleType("my_models")
    module.dense, module.frozen = dense, frozen
    monkeypatch.setitem(sys.modules, "my_models", module)
    return lambda *words: lab_command("attack", *words)


def test_one_command_attacks_a_scheme_and_draws_it(run, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    out = tmp_path / "grid.png"
    options = ["--model", "lenet", "--scheme", "jopeq", "--epsilon", 3, "--rate", 8, "--images", 2]
    result = run(*options, *SMALL, "--out", out)
    assert result.exit_code == 0, result.output
    assert out.stat().st_size > 10_000
    for words in ("raw", "jopeq", "adaptive", "95%"):
        assert words in result.output
    assert max(map(len, result.output.splitlines())) <= 80


def test_an_own_model(run, tmp_path):
    out = tmp_path / "grid.png"
    options = ["--model", "my_models:dense", "--data", "digits", "--images", 1]
    result = run(*options, "--scheme", "none", "--attack", "idlg", *SMALL, "--out", out, "--json")
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.output)
    assert (found["method"], found["labels_right"], len(found["ssim"])) == ("idlg", 1, 1)
    assert 0 <= found["recovered_interval"][0] <= found["recovered_interval"][1] <= 1


def test_without_a_scheme_four_are_compared(run, tmp_path):
    result = run("--images", 1, *SMALL, "--out", tmp_path / "a.png", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert len(found) == 4 * 2
    assert {one["spec"].split('"')[1] for one in found} == {"none", "sdq", "jopeq", "response"}


@pytest.mark.parametrize(
    "options",
    [
        *(f"--{name} guess" for name in ("attack", "model", "device")),
        *(f"--seed {2**63}", "--iterations 0", "--threads 0", "--data mars"),
        *("-p center=true --scheme sdq --rate 4", "--scheme jopeq"),
        *("--out nofolder.png/x.txt", "--rate 8", "--data-dir . --data photos"),
        *("--model nobody.knows:it", "--model my_models:frozen", "--images 7"),
        "--images 60000 --data digits",
    ],
)
def test_bad_input_is_named(run, tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    result = run(*SMALL, *("--out a.png " * ("--out" not in options) + options).split())
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    named = {"--scheme": "epsilon", "--data": "mars", "-p": "center"}
    name = options.split()[0]
    assert named.get(name, name.strip("-")) in result.output
    assert not list(tmp_path.iterdir())


# Where to draw


@pytest.mark.parametrize("name", ["folder.png", "file/x.png", "x" * 300 + ".png"])
def test_what_cannot_be_written_is_refused(tmp_path, name):
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "file").write_text("no folder")
    before = sorted(tmp_path.rglob("*"))
    check_out(tmp_path / "a" / "b" / "grid.png")  # a new place is fine
    with pytest.raises(ValueError, match="--out"):
        check_out(tmp_path / name)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("scheme", ["clients", "records"])
def test_shares_of_sums_are_not_attacked(run, scheme):
    done = run("--scheme", scheme, "--epsilon", 1, *SMALL)
    assert done.exit_code == 2
    assert f"jopeq audit --scheme {scheme}" in " ".join(done.output.replace("│", " ").split())
