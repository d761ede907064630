"""``jopeq attack``: what it prints and draws, and what it refuses before any work is done."""

import json
import os
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from torch import nn

import jopeq
from jopeq.attacks import compare
from jopeq.attacks.compare import Outcome
from jopeq.attacks.images import photos
from jopeq.cli.attack import (
    as_dict,
    attack_config,
    attack_table,
    check_demo,
    check_methods,
    check_out,
    choose_victims,
    gradients_of,
    heading,
)
from jopeq.errors import DataError

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


@pytest.fixture
def photo(tmp_path):
    path = tmp_path / "photo.png"
    pixels = np.random.default_rng(0).integers(0, 256, (20, 24, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def test_one_command_attacks_a_scheme_and_draws_it(run, tmp_path):
    out = tmp_path / "grid.png"
    options = ["--model", "lenet", "--scheme", "jopeq", "--epsilon", 3, "--rate", 8, "--images", 2]
    result = run(*options, *SMALL, "--out", out)
    assert result.exit_code == 0, result.output
    assert out.stat().st_size > 10_000
    for words in ("raw", "jopeq", "adaptive", "plain grey image", "recovered", "95%"):
        assert words in result.output


def test_own_images_and_an_own_model(run, tmp_path, photo):
    out = tmp_path / "grid.png"
    options = ["--model", "my_models:dense", "--shape", "3,8,8", "--image", photo, "--label", 4]
    result = run(*options, "--scheme", "none", "--attack", "idlg", *SMALL, "--out", out, "--json")
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.output)
    assert found["method"] == "idlg"
    assert found["labels_right"] == 1
    assert len(found["ssim"]) == 1
    assert 0 <= found["recovered_interval"][0] <= found["recovered_interval"][1] <= 1


def test_a_data_set_brings_its_own_labels(run, tmp_path):
    options = ["--data", "digits", "--scheme", "sdq", "--rate", 4, "--images", 3]
    result = run(*options, *SMALL, "--attack", "label", "--out", tmp_path / "a.png", "--json")
    assert result.exit_code == 0, result.output
    assert [one["label"] for one in json.loads(result.output)] == ["raw", "sdq, rate=4.0"]


def test_resume_goes_on(run, tmp_path):
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


def test_parameters_tell_rows_apart(run, tmp_path):
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


def test_without_a_scheme_four_are_compared(run, tmp_path):
    result = run("--demo", "--images", 1, *SMALL, "--out", tmp_path / "a.png", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert len(found) == 4 * 2
    assert {one["spec"].split('"')[1] for one in found} == {"none", "sdq", "jopeq", "response"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--attack", "guess"], "--attack must be one of"),
        (["--seed", 2**63], "--seed"),
        (["--demo", "--data", "digits"], "drop --demo, or --data"),
        (["--scheme", "sdq", "--rate", 4, "-p", "center=true"], "-p center=true"),
        (["--out", "nofolder.png/x.txt"], "--out must end"),
        (["--iterations", 0], "--iterations"),
        (["--scheme", "jopeq"], "epsilon"),
        (["--rate", 8], "--rate needs --scheme"),
        (["--parameter", "spread=2"], "--parameter needs --scheme"),
        (["--threads", 0], "--threads"),
        (["--data", "photos", "--data-dir", "."], "drop --data-dir"),
        (["--device", "warp"], "device"),
        (["--label", 3], "belong to --image"),
        (["--model", "nobody.knows:it"], "cannot be imported"),
        (["--model", "my_models:frozen"], "requires a gradient"),
        (["--data", "mars"], "mars"),
        (["--image", "nowhere.png"], "nowhere.png"),
        (["--image", "nowhere.png", "--data", "digits"], "drop --data"),
        (["--image", "nowhere.png", "--shape", "3,20000,20000"], "--shape must have at most"),
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


def test_memory_that_runs_out_is_named(run, tmp_path, monkeypatch):
    def full(*_, **__):
        torch.empty(1 << 60)

    monkeypatch.setattr(compare, "_attacked", full)
    result = run("--images", 1, *SMALL, "--out", tmp_path / "a.png")
    assert result.exit_code == 2
    assert "memory is too small" in result.output
    assert not list(tmp_path.iterdir())


def test_nothing_is_attacked_before_all_is_checked(run, tmp_path, monkeypatch):
    monkeypatch.setattr(compare, "attack", lambda *_, **__: pytest.fail("attacked"))
    center = ["--scheme", "sdq", "--rate", 4, "-p", "center=true", "--images", 1]
    for options in (center, ["--out", tmp_path], ["--out", tmp_path / "a.png" / "b.png"]):
        (tmp_path / "a.png").touch()
        result = run(*SMALL, "--out", tmp_path / "c.png", *options)
        assert result.exit_code == 2, result.output
        assert list(tmp_path.iterdir()) == [tmp_path / "a.png"]


def test_the_photograph_is_not_drawn_over(run, tmp_path, photo):
    before = photo.read_bytes()
    result = run("--image", photo, "--shape", "3,8,8", *SMALL, "--out", photo)
    assert result.exit_code == 2
    assert "would overwrite" in result.output
    assert photo.read_bytes() == before
    assert list(tmp_path.iterdir()) == [photo]


def test_the_channel_count_of_a_file_must_fit(run, tmp_path, photo):
    result = run("--image", photo, "--shape", "1,8,8", *SMALL, "--out", tmp_path / "a.png")
    assert result.exit_code == 2
    assert "3 channel(s)" in result.output


def test_a_label_beyond_the_classes_is_refused(run, tmp_path, photo):
    result = run("--image", photo, "--label", 10, *SMALL, "--out", tmp_path / "a.png")
    assert result.exit_code == 2
    assert "10 classes" in result.output


# How to attack


def test_the_first_method_is_set_and_the_line_search_is_wolfe():
    config = attack_config(["idlg", "label"], line_search=None, iterations=3)
    assert (config.method, config.iterations, config.line_search) == ("idlg", 3, "wolfe")
    assert attack_config(["idlg"], line_search="none").line_search == "none"


@pytest.mark.parametrize(
    ("methods", "settings", "words"),
    [
        (["label", "foo"], {}, "^--attack must be one of .* got 'foo'"),
        (["label"], {"line_search": "foo"}, "^--line-search must be one of"),
        (["label"], {"start": "foo"}, "^--start must be one of"),
        (["label"], {"restarts": -1}, "^--restarts must be"),
        (["inverting"], {"line_search": "none"}, "--line-search none belongs to L-BFGS"),
        (["label"], {"line_search": "wolfe", "optimizer": "adam"}, "--line-search wolfe belongs"),
    ],
)
def test_what_is_wrong_is_named_as_the_option(methods, settings, words):
    with pytest.raises(ValueError, match=words):
        attack_config(methods, **{"line_search": None, **settings})


def test_a_line_search_is_fine_where_one_of_the_attacks_has_it():
    assert attack_config(["inverting", "label"], line_search="none").line_search == "none"


def test_the_adaptive_attack_does_not_know_centering():
    schemes = {"mine": jopeq.scheme("sdq", rate=4.0, center=True)}
    check_methods(["label"], schemes)
    with pytest.raises(ValueError, match="center=true, which scheme 'mine' has"):
        check_methods(["label", "adaptive"], schemes)


def test_the_demo_has_its_own_images_and_schemes():
    check_demo(image=None, data_dir=None)
    with pytest.raises(ValueError, match="drop --demo, or --image and --data-dir"):
        check_demo(image=["a.png"], data_dir="folder")


# Whom to attack


def chosen(**given):
    names = ("files", "labels", "shape", "data", "data_dir", "images", "classes")
    return choose_victims(**{**dict.fromkeys(names), **given}, show=False)


def test_photographs_are_what_is_attacked_without_a_word():
    images, labels, classes = chosen()
    assert images.equal(photos())
    assert labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert classes == 10
    assert len(chosen(images=2, data="photos")[0]) == 2


def test_a_data_set_has_its_own_labels_and_classes():
    images, labels, classes = chosen(data="digits", images=3)
    assert images.shape == (3, 1, 8, 8)
    assert len(labels) == 3
    assert classes == 10


def test_files_are_numbered_through_the_classes(tmp_path):
    path = tmp_path / "grey.png"
    Image.fromarray(np.zeros((9, 9), dtype=np.uint8)).save(path)
    images, labels, classes = chosen(files=[path] * 3, shape="1,8,8", classes=2)
    assert images.shape == (3, 1, 8, 8)
    assert labels.tolist() == [0, 1, 0]
    assert classes == 2
    with pytest.raises(ValueError, match="once for each of 3 images"):
        chosen(files=[path] * 3, shape="1,8,8", labels=[1])
    with pytest.raises(ValueError, match="at least 0, got -1"):
        chosen(files=[path], shape="1,8,8", labels=[-1])


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ("3,³,3", "C,H,W such as"),
        ("3,32", "C,H,W such as"),
        ("3,-8,8", "C,H,W such as"),
        (f"3,{'9' * 5000},8", "C,H,W such as"),
        ("3,2,2", "at least 3 pixels"),
        ("1,0,8", "at least 3 pixels"),
        ("2,8,8", "1 .grey. or 3"),
        ("3,20000,20000", "at most 1,048,576 pixels"),
    ],
)
def test_a_bad_shape_is_told_before_files_are_read(tmp_path, shape, words):
    with pytest.raises(ValueError, match=f"--shape must .*{words}"):
        chosen(files=[tmp_path / "nowhere.png"], shape=shape)


def test_there_must_be_as_many_images_as_are_asked_for():
    with pytest.raises(ValueError, match=r"--images must be at most 1442, .* digits, got 60000"):
        chosen(data="digits", images=60000)
    with pytest.raises(ValueError, match=r"--images must be at most 6, .* got 7"):
        chosen(images=7)


def test_a_huge_picture_is_refused_without_a_warning(tmp_path):
    path = tmp_path / "huge.png"
    Image.new("1", (9500, 10000)).save(path)
    with pytest.raises(DataError, match="shrink it"):  # and any warning fails the test
        chosen(files=[path])


SHAPE = (1, 4, 4)
HEAD = """
import torch
from torch import nn
def dense():
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
class Raising(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.inner = kind, nn.Linear(16, 3)
    def forward(self, images):
        raise self.kind("what it said")
class Apart(nn.Module):
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
        return gradients_of("own_code:make", SHAPE, 3, seed=0, device="cpu")

    yield built
    sys.modules.pop("own_code", None)


def test_a_good_one_is_built(own):
    assert own("make = dense").classes == 3


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise RuntimeError('what it said')", "RuntimeError: what it said"),
        ("1 / 0", "ZeroDivisionError: division"),
        ("def make(:", "SyntaxError: "),
        ("make = unknown", "NameError: name 'unknown'"),
        ("raise SystemExit('what it said')", "SystemExit: what it said"),
        ("def make():\n    raise RuntimeError('what it\\n said')", "RuntimeError: what it said"),
        ("def make():\n    return {}['key']", "KeyError: 'key'"),
        ("def make():\n    raise ValueError('what it said')", "what it said"),
        (
            "def make():\n    dense().load_state_dict({})",
            "RuntimeError: Error(s) in loading state_dict",
        ),
        ("def make():\n    return Raising(TypeError)", "TypeError: what it said"),
        ("def make():\n    return Raising(AssertionError)", "AssertionError: what it said"),
        ("def make():\n    assert False", "(AssertionError)"),
        ("make = lambda: Apart(lambda x, inner: exec('assert False'))", "(AssertionError)"),
        ("def make():\n    return nn.LazyLinear(3)", "uninitialized parameter"),
        ("def make():\n    return nn.Linear(10**9, 10**9)", "does not fit into memory"),
        ("make = lambda: Apart(lambda x, inner: torch.ones(len(x), 3))", "no gradient"),
        ("make = lambda: Apart(lambda x, inner: inner(x).detach())", "no gradient"),
        ("def make():\n    return Apart(lambda x, inner: inner(x.detach()))", "on the image"),
    ],
)
def test_whatever_it_raises_is_one_line_that_names_it(own, code, said):
    with pytest.raises(ValueError, match="--model 'own_code:make'") as caught:
        own(code)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_that_are_unknown_are_told_once():
    with pytest.raises(ValueError, match=r"^--model must be one of .* got 'mine'$"):
        gradients_of("mine", SHAPE, 3, seed=0, device="cpu")


# Where to draw


def contents(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("*"))


def test_a_new_place_is_fine_and_stays_empty(tmp_path, photo):
    check_out(tmp_path / "a" / "b" / "grid.png", [photo])
    assert contents(tmp_path) == [Path("photo.png")]


@pytest.mark.parametrize("link", [None, Path.symlink_to, Path.hardlink_to])
def test_the_image_itself_is_refused(tmp_path, photo, link):
    out = photo
    if link is not None:
        out = tmp_path / "link.png"
        link(out, photo)
    with pytest.raises(ValueError, match=r"--out .* would overwrite .*--image"):
        check_out(out, [photo])
    with pytest.raises(ValueError, match="would overwrite"):
        check_out(photo, [out])


def test_the_image_under_the_name_of_what_is_kept_is_refused(tmp_path):
    image = tmp_path / "mine.npz"
    image.write_bytes(b"a photograph of an odd name")
    with pytest.raises(ValueError, match="would overwrite"):
        check_out(tmp_path / "mine.png", [image])


def test_an_unrelated_file_beside_the_picture_is_refused(tmp_path):
    np.savez(tmp_path / "data.npz", images=np.zeros(3))
    with pytest.raises(ValueError, match=r"--out .*data\.png would replace .*data\.npz"):
        check_out(tmp_path / "data.png")
    (tmp_path / "text.npz").write_text("text")
    with pytest.raises(ValueError, match="would replace"):
        check_out(tmp_path / "text.png")


def test_a_file_of_this_command_may_be_replaced(tmp_path):
    arrays = dict.fromkeys(("fingerprint", "gradients", "facts", "images"), np.zeros(1))
    np.savez(tmp_path / "grid.npz", **arrays)
    check_out(tmp_path / "grid.png")


@pytest.mark.parametrize("name", ["folder.png", "kept.png", "file/x.png", "x" * 300 + ".png"])
def test_what_cannot_be_written_is_refused(tmp_path, name):
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "kept.npz").mkdir()
    (tmp_path / "file").write_text("no folder")
    before = contents(tmp_path)
    with pytest.raises(ValueError, match="--out"):
        check_out(tmp_path / name)
    assert contents(tmp_path) == before


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="a folder where even root may not write")
def test_an_unwritable_folder_is_refused():
    with pytest.raises(ValueError, match=r"--out /proc/x/a\.png cannot be written"):
        check_out(Path("/proc/x/a.png"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(ValueError, match="cannot be written"):
        check_out(tmp_path / "a.png")


# The table and the headings


def outcome(label):
    return Outcome(
        label=label,
        spec="",
        method="label",
        images=torch.zeros(1, 1, 8, 8),
        mse=[0.1],
        psnr=[10.0],
        ssim=[0.2],
        status=["spent"],
        labels_right=1,
        evaluations=20.0,
    )


def shown(scheme):
    table = attack_table([outcome("mine")], {"mine": scheme}, torch.zeros(1, 1, 8, 8), "lenet")
    console = Console(width=120)
    with console.capture() as captured:
        console.print(table)
    return " ".join(captured.get().split())


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        ("response", {"rate": 8.0}, "ε: per entry of the gradient, against the server."),
        ("response", {"rate": 8.0, "unit": "update"}, "ε: per update, which is the whole"),
        ("jopeq", {"rate": 4.0, "lattice": "A2"}, "ε: per sample of 2 entries of the gradient"),
    ],
)
def test_the_caption_says_what_epsilon_protects(name, parameters, words):
    scheme = jopeq.scheme(name, epsilon=3.0, clip=1.0, **parameters)
    assert words in shown(scheme)
    assert as_dict(outcome("mine"), scheme)["unit"] == parameters.get("unit", "sample")


def test_where_nothing_is_proven_no_unit_is_named():
    assert "ε: " not in shown(jopeq.scheme("none"))


def test_headings_hold_every_parameter_in_narrow_lines():
    assert heading(outcome("raw")) == "raw\nlabel"
    assert heading(outcome("jopeq, ε=3, R=8")) == "jopeq\nε=3, R=8\nlabel"
    long = heading(outcome("response, epsilon=3.0, rate=8.0, unit=update"))
    assert long == "response\nepsilon=3.0\nrate=8.0\nunit=update\nlabel"
