"""``jopeq attack``: what it prints and draws, and what it refuses before any work is done."""

import json
import sys
import types
from importlib import import_module

import numpy as np
import pytest
import torch
from torch import nn

import jopeq
from jopeq.cli.attack import as_dict, attack_table, check_out, choose_victims
from jopeq.lab.attacks import compare
from jopeq.lab.attacks.images import photos

attack = import_module("jopeq.cli.attack")  # the module, not the command
SMALL = ["--iterations", "1", "--threads", "1"]


def dense(input_shape, classes):
    """A model of one's own, found by its import path."""
    channels, height, width = input_shape
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, classes))


def frozen(input_shape, classes):
    return dense(input_shape, classes).requires_grad_(False)


@pytest.fixture
def run(monkeypatch, jopeq_command):
    module = types.ModuleType("my_models")
    module.dense, module.frozen = dense, frozen
    monkeypatch.setitem(sys.modules, "my_models", module)
    return lambda *words: jopeq_command("attack", *words)


def test_one_command_attacks_a_scheme_and_draws_it(run, tmp_path):
    out = tmp_path / "grid.png"
    options = ["--model", "lenet", "--scheme", "jopeq", "--epsilon", 3, "--rate", 8, "--images", 2]
    result = run(*options, *SMALL, "--out", out)
    assert result.exit_code == 0, result.output
    assert out.stat().st_size > 10_000
    for words in ("raw", "jopeq", "adaptive", "95%"):
        assert words in result.output


def test_an_own_model(run, tmp_path):
    out = tmp_path / "grid.png"
    options = ["--model", "my_models:dense", "--data", "digits", "--images", 1]
    result = run(*options, "--scheme", "none", "--attack", "idlg", *SMALL, "--out", out, "--json")
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.output)
    assert (found["method"], found["labels_right"], len(found["ssim"])) == ("idlg", 1, 1)
    assert 0 <= found["recovered_interval"][0] <= found["recovered_interval"][1] <= 1


def test_resume_goes_on(run, tmp_path):
    options = ["--data", "digits", "--scheme", "sdq", "--rate", 4, "--images", 2, *SMALL, "--json"]
    options += ["--attack", "label", "--out", tmp_path / "a.png"]
    first = json.loads(run(*options).output)
    again = run(*options, "--attack", "idlg", "--resume")
    assert again.exit_code == 0, again.output
    assert [one for one in json.loads(again.output) if one["method"] == "label"] == first
    other = run(*options, "--seed", 5, "--resume")
    assert (other.exit_code != 0, "--resume" in other.output) == (True, True)


def test_without_a_scheme_four_are_compared(run, tmp_path):
    result = run("--demo", "--images", 1, *SMALL, "--out", tmp_path / "a.png", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert len(found) == 4 * 2
    assert {one["spec"].split('"')[1] for one in found} == {"none", "sdq", "jopeq", "response"}


CHOICES = ("attack", "line-search", "start", "model")
LIMITS = {"--restarts": -1, "--seed": 2**63, "--iterations": 0, "--threads": 0}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        *(([f"--{name}", "guess"], f"--{name} must be one of") for name in CHOICES),
        (["--attack", "inverting", "--line-search", "none"], "belongs to L-BFGS"),
        (["--optimizer", "adam", "--line-search", "wolfe"], "--line-search wolfe belongs"),
        *(([name, value], name) for name, value in LIMITS.items()),
        (["--demo", "--data", "digits"], "drop --demo, or --data"),
        (["--scheme", "sdq", "--rate", 4, "-p", "center=true"], "-p center=true"),
        (["--out", "nofolder.png/x.txt"], "--out must end"),
        (["--scheme", "jopeq"], "epsilon"),
        (["--rate", 8], "--rate needs --scheme"),
        (["--data", "photos", "--data-dir", "."], "drop --data-dir"),
        (["--device", "warp"], "device"),
        (["--model", "nobody.knows:it"], "cannot be imported"),
        (["--model", "my_models:frozen"], "requires a gradient"),
        (["--data", "mars"], "mars"),
        (["--data", "digits", "--images", 60_000], "--images must be at most 1442"),
        (["--images", 7], "--images must be at most 6"),
    ],
)
def test_bad_input_is_named(run, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    given = ["--out", "a.png"] if "--out" not in arguments else []
    result = run(*SMALL, *given, *arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert words in result.output
    assert not list(tmp_path.iterdir())


def test_nothing_is_attacked_before_all_is_checked(run, tmp_path, monkeypatch):
    monkeypatch.setattr(compare, "attack", lambda *_, **__: pytest.fail("attacked"))
    center = ["--scheme", "sdq", "--rate", 4, "-p", "center=true", "--images", 1]
    for options in (center, ["--out", tmp_path], ["--out", tmp_path / "a.png" / "b.png"]):
        (tmp_path / "a.png").touch()
        result = run(*SMALL, "--out", tmp_path / "c.png", *options)
        assert result.exit_code == 2, result.output
        assert list(tmp_path.iterdir()) == [tmp_path / "a.png"]


# Whom to attack, and how


def chosen(data=None, images=6):
    return choose_victims(data, None, images, show=False)


def test_photographs_or_a_data_set_are_attacked():
    images, labels, classes = chosen()
    assert images.equal(photos())
    assert (labels.tolist(), classes) == ([0, 1, 2, 3, 4, 5], 10)
    assert len(chosen(images=2, data="photos")[0]) == 2
    images, labels, classes = chosen(data="digits", images=3)
    assert (images.shape, len(labels), classes) == ((3, 1, 8, 8), 3, 10)


SHAPE = (1, 4, 4)
HEAD = """
from torch import nn
def dense():
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
class Own(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.inner, self.way = dense(), forward
    def forward(self, images):
        return self.way(images, self.inner)
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def built(code):
        (tmp_path / "own_code.py").write_text(HEAD + code)
        sys.modules.pop("own_code", None)
        return attack.gradients_of("own_code:make", SHAPE, 3, seed=0, device="cpu")

    yield built
    sys.modules.pop("own_code", None)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("1 / 0", "ZeroDivisionError: division"),
        ("raise SystemExit('what it said')", "SystemExit: what it said"),
        ("def make():\n    raise RuntimeError('what it\\n said')", "RuntimeError: what it said"),
        ("make = lambda: nn.LazyLinear(3)", "uninitialized parameter"),
        ("make = lambda: Own(lambda x, inner: inner(x.detach()))", "on the image"),
    ],
)
def test_whatever_an_own_model_raises_is_one_line_that_names_it(own, code, said):
    assert own("make = dense").classes == 3
    with pytest.raises(ValueError, match="--model 'own_code:make'") as caught:
        own(code)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


# Where to draw


def test_only_a_file_of_this_command_may_be_replaced(tmp_path):
    np.savez(tmp_path / "data.npz", images=np.zeros(3))
    (tmp_path / "text.npz").write_text("text")
    for name in ("data", "text"):
        with pytest.raises(ValueError, match=rf"--out .*{name}\.png would replace .*{name}\.npz"):
            check_out(tmp_path / f"{name}.png")
    arrays = dict.fromkeys(("fingerprint", "gradients", "facts", "images"), np.zeros(1))
    np.savez(tmp_path / "grid.npz", **arrays)
    check_out(tmp_path / "grid.png")


@pytest.mark.parametrize("name", ["folder.png", "kept.png", "file/x.png", "x" * 300 + ".png"])
def test_what_cannot_be_written_is_refused(tmp_path, name):
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "kept.npz").mkdir()
    (tmp_path / "file").write_text("no folder")
    before = sorted(tmp_path.rglob("*"))
    check_out(tmp_path / "a" / "b" / "grid.png")  # a new place is fine
    with pytest.raises(ValueError, match="--out"):
        check_out(tmp_path / name)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "scheme", [jopeq.Response(epsilon=3.0, clip=1.0, rate=8.0), jopeq.Sphere(epsilon=3.0, clip=1.0)]
)
def test_the_table_and_its_data_say_what_epsilon_protects(scheme):
    images, measured = torch.zeros(1, 1, 8, 8), {"mse": [0.1], "psnr": [10.0], "ssim": [0.2]}
    tried = {"status": ["spent"], "labels_right": 1, "evaluations": 20.0, "method": "label"}
    outcome = compare.Outcome(label="mine", spec="", images=images, **measured, **tried)
    table = attack_table([outcome], {"mine": scheme}, images, "lenet")
    unit = as_dict(outcome, scheme)["unit"]
    assert unit == ("update" if scheme.name == "sphere" else "sample")
    assert f"ε: per {unit.replace('sample', 'entry')}" in table.caption
