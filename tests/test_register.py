"""The examples of docs/build-on-it.md, and what else is registered from outside the package.

They work wherever the library's own schemes, lattices and laws do.
"""

import dataclasses
import importlib
import json
import math
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import jopeq
from jopeq import registry
from jopeq.entries import additive
from jopeq.lattice import Lattice, lattices
from jopeq.noise import Laplace
from jopeq.random.streams import PrivateStream
from jopeq.schemes import Scheme

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples" / "build-on-it"
NAMES = tuple(sorted(path.stem for path in EXAMPLES.glob("*.py")))
CUBIC = Lattice(generator=((-1.0, 1.0, 1.0), (1.0, -1.0, 1.0), (1.0, 1.0, -1.0)))


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    """Let no other test know what a test registers."""
    tables = (registry.SCHEMES, lattices._KNOWN, additive._NAMED)
    before = [dict(table) for table in tables]
    monkeypatch.syspath_prepend(EXAMPLES)
    yield
    for table, known in zip(tables, before, strict=True):
        table.clear()
        table.update(known)
    for name in NAMES:
        sys.modules.pop(name, None)


def example(name, clip=None):
    """A scheme of each example."""
    module = importlib.import_module(name)
    return {
        "sign": lambda: jopeq.scheme("sign", epsilon=8.0, clip=clip),
        "qsgd": lambda: jopeq.scheme("qsgd", levels=3, clip=clip),
        "bcc": lambda: dataclasses.replace(module.row(epsilon=8.0, rate=3.0), clip=clip),
    }[name]()


def test_the_page_shows_the_examples_as_they_are():
    page = (ROOT / "docs" / "build-on-it.md").read_text("utf-8")
    shown = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert sorted(shown) == sorted((EXAMPLES / f"{name}.py").read_text("utf-8") for name in NAMES)
    scheme = (EXAMPLES / "sign.py").read_text("utf-8").partition("\n@")[2]
    assert len([line for line in scheme.splitlines() if line]) <= 30


@pytest.mark.parametrize("name", NAMES)
def test_examples_are_unbiased_and_their_specs_name_them(name, tmp_path):
    scheme = example(name, clip=1.0)
    assert jopeq.scheme_from_spec(scheme.spec) == scheme
    update = np.tile(np.float32([0.3, -0.7, 0.05]), 40_000)
    file, noise = tmp_path / "update", PrivateStream.reproducible(b"a".ljust(32))
    seed = bytes(32) if scheme.codec.has_dither else None
    file.write_bytes(scheme.encode(update, noise=noise, seed=seed))
    assert 8 * file.stat().st_size < (scheme.bits_per_entry + 0.05) * len(update)
    errors = (scheme.decode(file.read_bytes()) - update).reshape(-1, 3)
    assert np.all(np.abs(errors.mean(axis=0)) < 5 * errors.std(axis=0) / math.sqrt(len(errors)))
    payloads = [scheme.encode(update) for _ in range(4)]
    mean = jopeq.aggregate(payloads, scheme=scheme, like=update)
    assert np.square(mean - update).mean() < 0.3 * np.square(errors).mean()


def test_qsgd_errs_as_its_plan_says():
    """At its own spread and at that of the paper, where no entry is clipped."""
    normal = np.random.default_rng(0).standard_normal(60_000, dtype=np.float32)
    noise = PrivateStream.reproducible(b"q".ljust(32))
    importlib.import_module("qsgd")
    for spread, levels in ((3.0, 2), (math.sqrt(len(normal)), 500)):
        scheme = jopeq.scheme("qsgd", levels=levels, spread=spread)
        payload, counts = scheme.encode(normal, noise=noise, counts=True)
        planned = scheme.codec.distortion_for(1.0 / spread) * spread**2
        assert np.var(scheme.decode(payload) - normal) == pytest.approx(planned, rel=0.05)
        assert (counts.clipped > 0) == (spread == 3.0)


@pytest.mark.parametrize("name", ["sign", "qsgd"])
def test_examples_refuse_what_they_cannot_do(name):
    importlib.import_module(name)
    parameter, values = {
        "sign": ("epsilon", (0.0, 21.0, math.nan)),
        "qsgd": ("levels", (0, 2**15)),
    }[name]
    for value in values:
        with pytest.raises(ValueError, match=parameter):
            jopeq.scheme(name, **{parameter: value})


def test_signs_are_as_private_as_they_say(tmp_path):
    with pytest.raises(ValueError, match="scheme must be one of"):
        jopeq.scheme_from_spec('["sign",{"epsilon":2.0}]')
    sign = importlib.import_module("sign").Sign
    scheme = sign(epsilon=2.0, clip=0.5)
    for epsilon in (1e-6, 0.3, 2.0, 20.0):  # at the ends of the ball, in integers
        ends, least = np.array([[-1.0], [1.0]]), sign(epsilon=epsilon).codec.least
        most = 2**32 - least
        words = {least - 1: [1, 1], least: [0, 1], most - 1: [0, 1], most: [0, 0]}
        for word, letters in words.items():
            found = sign(epsilon=epsilon).codec.to_letters(ends, 0, None, Always(word)).values
            assert found.tolist() == letters
        proven = math.log((2**32 - least) / least)
        assert sign(epsilon=epsilon).guarantee.epsilon == pytest.approx(proven, rel=1e-9)
        assert proven <= epsilon * (1 + 1e-12)
    report = jopeq.audit(scheme, draws=20_000)
    assert report.empirical.lower > 1.5  # no upper limit: one honest audit in twenty exceeds ε
    assert report.proven <= 2.0
    assert report.is_consistent

    @dataclass(frozen=True, kw_only=True)
    class Lying(sign):
        name: ClassVar[str] = "lying"
        guarantee = property(lambda self: jopeq.Guarantee(epsilon=0.5, nominal=0.5))

    assert not jopeq.audit(Lying(epsilon=2.0), draws=20_000).is_consistent
    assert "travels in the clear" in str(sign(epsilon=2.0).guarantee)
    assert "in the clear" not in str(scheme.guarantee)


class Always:
    """A private stream of one word."""

    def __init__(self, word):
        self.word = word

    def words32(self, *, lane, start, count):
        return np.full(count, self.word, dtype=np.uint32)


def test_a_ledger_counts_examples_and_refuses_what_has_no_epsilon(tmp_path):
    update = np.full(40_000, 0.2, np.float32)
    ledger = jopeq.Ledger.create(tmp_path / "ledger.json", budget=1e6)
    ledger.encode(example("sign", clip=0.5), update)
    ledger.save(tmp_path / "ledger.json")
    spent = jopeq.Ledger.load(tmp_path / "ledger.json").spent.epsilon
    assert spent == pytest.approx(320_000, rel=1e-6)
    other = jopeq.Ledger.create(tmp_path / "other.json", budget=1e6)
    other.encode(example("bcc", clip=0.5), update)
    assert other.spent.epsilon == pytest.approx(13_334 * example("bcc").guarantee.epsilon)
    third = jopeq.Ledger.create(tmp_path / "third.json", budget=1e6)
    with pytest.raises(jopeq.BudgetExceededError):
        third.encode(example("qsgd", clip=0.5), update)


@pytest.mark.parametrize("name", NAMES)
def test_examples_travel_through_flower(name):
    flower = pytest.importorskip("jopeq.flower")
    from flwr.serverapp.strategy import FedAvg

    from tests.flower.conftest import Federation, records, trainer

    scheme = example(name, clip=0.5)
    nodes = range(1, 4)
    app = trainer(lambda _, value: value + np.float32(0.25), [flower.PayloadMod(scheme)])
    strategy = flower.PayloadStrategy(FedAvg(), scheme=scheme)
    clients = Federation(strategy, dict.fromkeys(nodes, app))
    model, _ = clients.round(1, records({"w": np.zeros(20_000, np.float32)})["arrays"])
    assert abs(model["w"].numpy().mean() - 0.25) < 0.01


@pytest.mark.parametrize("name", NAMES)
def test_attacks_read_examples(name):
    torch = pytest.importorskip("torch")
    from jopeq_lab.attacks.likelihood import likelihood

    scheme = example(name, clip=1.0)
    truth = torch.full((1, 500), 0.5)
    said = likelihood([scheme], [scheme.encode(truth[0].numpy())])
    assert said.kind == "squares"
    assert said(truth) < said(-truth)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sign", "--scheme sign:Sign --epsilon 8"),
        ("qsgd", "--scheme qsgd:QSGD -s levels=3"),
        ("bcc", "--scheme jopeq --epsilon 8 --rate 2 -s lattice=bcc"),
    ],
)
def test_the_lab_trains_and_resumes_examples(name, words, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    from typer.testing import CliRunner

    from jopeq_lab.cli import app

    monkeypatch.setenv("COLUMNS", "600")
    if name == "bcc":  # a lattice is known by its name once its module is imported
        importlib.import_module("bcc")
    words += " --data digits --clients 4 -s local_steps=20 --out"
    words = ["train", *words.split(), str(tmp_path / "run")]
    done = CliRunner().invoke(app, [*words, "--rounds", "10", "--json"])
    assert done.exit_code == 0, done.output
    [told] = json.loads(done.stdout)
    assert told["test_accuracy"] > 0.7
    done = CliRunner().invoke(app, [*words, "--rounds", "11", "--resume"])
    assert done.exit_code == 0, done.output
    assert name in done.output


def test_the_lab_attacks_an_example(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    from typer.testing import CliRunner

    from jopeq_lab.cli import app

    monkeypatch.setenv("COLUMNS", "600")
    words = "--scheme sign:Sign --epsilon 8 --images 1 --iterations 1 --threads 1 --out"
    done = CliRunner().invoke(app, ["attack", *words.split(), str(tmp_path / "grid.png")])
    assert done.exit_code == 0, done.output
    assert "sign:Sign" in done.output


def command(*words):
    """``jopeq`` in a process that has the examples' folder on its path."""
    path = os.pathsep.join((str(EXAMPLES), *sys.path))
    return subprocess.run(
        [sys.executable, "-m", "jopeq", *words],
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200", "PYTHONUTF8": "1"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def test_a_command_imports_what_its_user_names():
    done = command("audit", "--scheme", "sign:Sign", "--epsilon", "2", "--draws", "20000", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["consistent"]


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere:Sign", "No module named 'nowhere'"),
        ("sign:Signs", "no attribute 'Signs'"),
        ("sign:SignCodec", "no registered scheme"),
        ("bcc:BCC", "no registered scheme"),
        (":", "Empty module name"),
    ],
)
def test_a_command_says_what_it_cannot_import(place, message, monkeypatch):
    from typer.testing import CliRunner

    from jopeq.cli import app

    monkeypatch.setenv("COLUMNS", "300")
    done = CliRunner().invoke(app, ["audit", "--scheme", place])
    assert done.exit_code == 2
    assert message in done.output


def test_other_processes_train_examples(tmp_path):
    """As ``python -m paper table1 --add bcc:row`` does on a machine with two cores."""
    pytest.importorskip("torch")
    from jopeq_lab.training.config import TrainConfig
    from paper.runs import Job, run_job, run_jobs

    small = {"data": "digits", "clients": 2, "rounds": 1, "local_steps": 1, "compile": "off"}
    jobs = [Job(name, TrainConfig(scheme=example(name), **small)) for name in NAMES]
    done = run_jobs(jobs, tmp_path / "runs.jsonl", run_job, processes=2, modules=NAMES)
    assert [run.scheme for run in done] == [job.config.built_scheme.spec for job in jobs]


def test_a_lattice_and_a_law_are_names_in_specifications():
    jopeq.register(CUBIC, "cubic")
    jopeq.register(
        lambda epsilon, dimension: Laplace(4.0 * math.sqrt(dimension) / epsilon, dimension), "wide"
    )
    scheme = jopeq.scheme("jopeq", epsilon=4.0, rate=3.0, lattice="cubic", law="wide")
    assert json.loads(scheme.spec)[1] == {
        "epsilon": 4.0, "lattice": "cubic", "law": "wide", "rate": 3.0,
    }  # fmt: skip
    assert jopeq.scheme_from_spec(scheme.spec) == scheme
    assert 2.0 < scheme.guarantee.epsilon < 2.5  # twice the noise, less what the dither makes of it
    x = np.random.default_rng(0).normal(size=(100, 3))
    assert (Lattice("cubic", step=0.3).nearest(x) == CUBIC.scale(0.3).nearest(x)).all()
    seed = bytes(32)
    named, given = (jopeq.scheme("sdq", rate=2.0, lattice=which) for which in ("cubic", CUBIC))
    payloads = [one.encode(x[0].astype(np.float32), seed=seed) for one in (named, given)]
    assert named.decode(payloads[0]).tolist() == given.decode(payloads[1]).tolist()


@dataclass(frozen=True, kw_only=True)
class Half(Scheme):
    """It lacks what a scheme must define."""

    name: ClassVar[str] = "half"


class Plain(jopeq.SubtractiveDither):
    """No dataclass of its own."""

    name: ClassVar[str] = "plain"


@pytest.mark.parametrize(
    ("thing", "name", "message"),
    [
        (Half, None, "Half must define all of a Scheme and its own name"),
        (Plain, None, r"Plain must be a @dataclass\(frozen=True, kw_only=True\)"),
        (jopeq.JoPEQ, "other", "its own name"),
        (CUBIC, None, "name must be up to 40 small letters"),
        (CUBIC, "a b", "name must be up to 40 small letters"),
        (CUBIC, "E8", "name must be up to 40 small letters"),
        (CUBIC, "custom", "lattice 'custom' is known already"),
        (lambda epsilon, dimension: Laplace(1.0), "laplace", "law 'laplace' is known already"),
        (Laplace, "mine", "register takes a class of Scheme"),
        ("jopeq", "mine", "register takes a class of Scheme"),
        (dataclasses.make_dataclass("Jo", [], bases=(jopeq.JoPEQ,), frozen=True, kw_only=True,
                                    namespace={"name": "jopeq"}), None, "scheme 'jopeq' is known"),
    ],
)  # fmt: skip
def test_what_cannot_be_registered_is_refused(thing, name, message):
    with pytest.raises(ValueError, match=message):
        jopeq.register(thing, name)
