import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner

from jopeq.cli import app

SMALL = ["--iterations", "1", "--threads", "1"]


def run(*arguments):
    return CliRunner().invoke(app, ["attack", *map(str, arguments)])


def dense(input_shape, classes):
    """A model of one's own, found by its import path."""
    channels, height, width = input_shape
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, classes))


def frozen(input_shape, classes):
    return dense(input_shape, classes).requires_grad_(False)


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    import sys
    import types

    module = types.ModuleType("my_models")
    module.dense, module.frozen = dense, frozen
    monkeypatch.setitem(sys.modules, "my_models", module)


@pytest.fixture
def photo(tmp_path):
    path = tmp_path / "photo.png"
    pixels = np.random.default_rng(0).integers(0, 256, (20, 24, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def test_one_command_attacks_a_scheme_and_draws_it(tmp_path):
    out = tmp_path / "grid.png"
    options = ["--model", "lenet", "--scheme", "jopeq", "--epsilon", 3, "--rate", 8, "--images", 2]
    result = run(*options, *SMALL, "--out", out)
    assert result.exit_code == 0, result.output
    assert out.stat().st_size > 10_000
    for words in ("raw", "jopeq", "adaptive", "plain grey image", "recovered", "95%"):
        assert words in result.output


def test_own_images_and_an_own_model(tmp_path, photo):
    out = tmp_path / "grid.png"
    options = ["--model", "my_models:dense", "--shape", "3,8,8", "--image", photo, "--label", 4]
    result = run(*options, "--scheme", "none", "--attack", "idlg", *SMALL, "--out", out, "--json")
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.output)
    assert found["method"] == "idlg"
    assert found["labels_right"] == 1
    assert len(found["ssim"]) == 1
    assert 0 <= found["recovered_interval"][0] <= found["recovered_interval"][1] <= 1


def test_a_data_set_brings_its_own_labels(tmp_path):
    options = ["--data", "digits", "--scheme", "sdq", "--rate", 4, "--images", 3]
    result = run(*options, *SMALL, "--attack", "label", "--out", tmp_path / "a.png", "--json")
    assert result.exit_code == 0, result.output
    assert [one["label"] for one in json.loads(result.output)] == ["raw", "sdq, rate=4.0"]


def test_resume_goes_on(tmp_path):
    options = ["--data", "digits", "--scheme", "sdq", "--rate", 4, "--images", 2, *SMALL, "--json"]
    options += ["--attack", "label", "--out", tmp_path / "a.png"]
    first = json.loads(run(*options).output)
    again = run(*options, "--attack", "idlg", "--resume")
    assert again.exit_code == 0, again.output
    found = json.loads(again.output)
    assert [one for one in found if one["method"] == "label"] == first
    other = run(*options, "--seed", 5, "--resume")
    assert other.exit_code != 0
    assert "--resume" in other.output


def test_parameters_tell_rows_apart(tmp_path):
    options = ["--data", "digits", "--scheme", "response", "--epsilon", 3, "--rate", 8]
    options += ["-p", "unit=update", "-p", "clip=1", "--images", 1, "--attack", "label", *SMALL]
    result = run(*options, "--out", tmp_path / "a.png")
    assert result.exit_code == 0, result.output
    shown = " ".join(result.output.split())
    for words in ("response, epsilon=3.0,", "rate=8.0, unit=update, clip=1"):
        assert words in shown
    assert "…" not in shown
    assert "per update" in shown
    assert "per entry" not in shown


def test_without_a_scheme_four_are_compared(tmp_path):
    result = run("--demo", "--images", 1, *SMALL, "--out", tmp_path / "a.png", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert len(found) == 4 * 2
    assert {one["spec"].split('"')[1] for one in found} == {"none", "sdq", "jopeq", "response"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--attack", "guess"], "--attack must be one of"),
        (["--optimizer", "sgd"], "--optimizer must be one of"),
        (["--line-search", "strong"], "--line-search must be one of"),
        (["--optimizer", "adam", "--line-search", "none"], "--line-search none belongs to L-BFGS"),
        (["--seed", 2**63], "--seed"),
        (["--demo", "--data", "digits"], "drop --demo, or --data"),
        (["--demo", "--scheme", "none"], "drop --demo, or --scheme"),
        (["--demo", "--image", "nowhere.png"], "drop --demo, or --image"),
        (["--scheme", "sdq", "--rate", 4, "-p", "center=true"], "-p center=true"),
        (["--data", "digits", "--images", 60000], "--images must be at most 1442"),
        (["--out", "nofolder.png/x.txt"], "--out must end"),
        (["--iterations", 0], "--iterations"),
        (["--scheme", "jopeq"], "epsilon"),
        (["--scheme", "response", "--epsilon", 3], "scheme 'response' needs rate"),
        (["--rate", 8], "--rate needs --scheme"),
        (["--parameter", "spread=2"], "--parameter needs --scheme"),
        (["--threads", 0], "--threads"),
        (["--data", "photos", "--data-dir", "."], "drop --data-dir"),
        (["--out", "grid.txt"], "--out"),
        (["--device", "warp"], "device"),
        (["--images", 7], "--images must be at most 6"),
        (["--label", 3], "belong to --image"),
        (["--shape", "3,8,8"], "belong to --image"),
        (["--classes", 4], "belong to --image"),
        (["--image", "nowhere.png", "--images", 2], "drop --data"),
        (["--model", "nobody.knows:it"], "cannot be imported"),
        (["--model", "my_models:frozen"], "requires a gradient"),
        (["--data", "mars"], "mars"),
        (["--image", "nowhere.png"], "nowhere.png"),
        (["--image", "nowhere.png", "--data", "digits"], "drop --data"),
        (["--image", "nowhere.png", "--shape", "32"], "--shape"),
        (["--image", "nowhere.png", "--shape", "3,20000,20000"], "--shape must have at most"),
    ],
)
def test_bad_input_is_named(tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    given = ["--out", "a.png"] if "--out" not in arguments else []
    result = run(*SMALL, *given, *arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert words in " ".join(result.output.replace("│", " ").split())
    assert not list(tmp_path.iterdir())


def test_memory_that_runs_out_is_named(tmp_path, monkeypatch):
    import jopeq.attacks.compare as module

    def full(*_, **__):
        torch.empty(1 << 60)

    monkeypatch.setattr(module, "_attacked", full)
    result = run("--images", 1, *SMALL, "--out", tmp_path / "a.png")
    assert result.exit_code == 2
    assert "memory is too small" in " ".join(result.output.replace("│", " ").split())
    assert not list(tmp_path.iterdir())


def test_nothing_is_attacked_before_all_is_checked(tmp_path, monkeypatch):
    import jopeq.attacks.compare as module

    monkeypatch.setattr(module, "attack", lambda *_, **__: pytest.fail("attacked"))
    center = ["--scheme", "sdq", "--rate", 4, "-p", "center=true", "--images", 1]
    for options in (center, ["--out", tmp_path], ["--out", tmp_path / "a.png" / "b.png"]):
        (tmp_path / "a.png").touch()
        result = run(*SMALL, "--out", tmp_path / "c.png", *options)
        assert result.exit_code == 2, result.output
        assert list(tmp_path.iterdir()) == [tmp_path / "a.png"]


def test_the_photograph_is_not_drawn_over(tmp_path, photo):
    before = photo.read_bytes()
    result = run("--image", photo, "--shape", "3,8,8", *SMALL, "--out", photo)
    assert result.exit_code == 2
    assert "would overwrite" in " ".join(result.output.replace("│", " ").split())
    assert photo.read_bytes() == before
    assert list(tmp_path.iterdir()) == [photo]


def test_the_channel_count_of_a_file_must_fit(tmp_path, photo):
    result = run("--image", photo, "--shape", "1,8,8", *SMALL, "--out", tmp_path / "a.png")
    assert result.exit_code == 2
    assert "3 channel(s)" in " ".join(result.output.replace("│", " ").split())


def test_a_label_beyond_the_classes_is_refused(tmp_path, photo):
    result = run("--image", photo, "--label", 10, *SMALL, "--out", tmp_path / "a.png")
    assert result.exit_code == 2
    assert "10 classes" in " ".join(result.output.replace("│", " ").split())


@pytest.fixture(autouse=True)
def _threads_as_they_were():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
