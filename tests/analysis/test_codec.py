"""``jopeq codec``: one real update through every scheme; measured is computed."""

import hashlib
import itertools
import math
import re
from importlib import import_module

import numpy as np
import pytest
from typer.testing import CliRunner

from jopeq import scheme
from jopeq.analysis.codec import (
    CLASSES,
    EPSILONS,
    PIXELS,
    RATES,
    all_schemes,
    centre_distortion,
    codec_row,
    example_update,
)
from jopeq.cli import app
from jopeq.random import streams as randomness
from jopeq.random.streams import SharedStream

SAMPLES = 1 << 17  # of the table, and of the plane's computed figure

MEASURED = [
    scheme("none"),
    scheme("sdq", rate=1.0),
    scheme("sdq", rate=8.0),
    scheme("dq", rate=2.0),
    scheme("sdq", rate=2.0, lattice="A2"),
    scheme("laplace", epsilon=1.0),
    scheme("t", epsilon=4.0),
    scheme("laplace+sdq", epsilon=4.0, rate=1.0),
    scheme("jopeq", epsilon=4.0, rate=1.0),
    scheme("jopeq", epsilon=1.0, rate=4.0),
    scheme("t+sdq", epsilon=4.0, rate=2.0, lattice="A2"),
    scheme("jopeq", epsilon=2.0, rate=2.0, lattice="A2"),
    scheme("mvu", epsilon=4.0, rate=2.0),
    scheme("staircase", epsilon=2.0),
    scheme("response", epsilon=1.0, rate=1.0),
    scheme("response", epsilon=4.0, rate=4.0),
]


@pytest.fixture(autouse=True)
def same_entropy(monkeypatch):
    """The operating system's entropy, the same in every run."""
    counter = itertools.count()

    def urandom(length):
        return hashlib.shake_128(f"codec {next(counter)}".encode()).digest(length)

    monkeypatch.setattr(randomness.os, "urandom", urandom)


@pytest.fixture(scope="module")
def update():
    return example_update()


def standard_error(coded, private):
    """Of the mean squared error of SAMPLES samples at the centre."""
    shared = SharedStream(private("centre, dither").read(lane=0, start=0, count=32).tobytes())
    centre = np.zeros((SAMPLES, coded.dimension))
    letters = coded.to_letters(centre, 0, shared, private("centre, noise")).values
    squares = np.square(coded.to_samples(letters, 0, shared)).mean(axis=1)
    return float(squares.std()) / math.sqrt(SAMPLES)


@pytest.mark.parametrize("coded", MEASURED, ids=lambda value: value.spec)
def test_a_row_measures_what_is_computed_and_sent(coded, update, private):
    row = codec_row(coded, update)
    error = standard_error(coded, private)
    if coded.dimension > 1:  # there the computed figure is itself a mean over draws
        error *= math.sqrt(2)
    assert row.distortion == coded.distortion
    assert abs(row.measured - row.distortion) <= 5 * error + 1e-12
    payload, counted = coded.encode(update, statistics=True)
    entropy = getattr(coded, "coding", "") == "entropy"
    assert abs(row.payload_bytes - len(payload)) <= (100 if entropy else 0)
    assert row.bits_per_entry == pytest.approx(counted.bits_per_entry, abs=0.1 if entropy else 0)
    assert 0.0 <= row.overload_rate <= 1.0
    if (rate := getattr(coded, "rate", None)) is not None:
        assert row.bits_per_entry <= rate + 0.02  # the last word is filled up


def test_the_error_is_that_of_the_update(update):
    assert codec_row(scheme("none"), update).normalised_error == 0.0
    fine = codec_row(scheme("sdq", rate=8.0, spread=30.0), update)
    # nothing is clipped at this spread: Δ²/12 an entry, in units of 30‖h‖/√M
    step = 2 / 255 * 30.0 * np.linalg.norm(update) / math.sqrt(update.size)
    expected = update.size * step**2 / 12 / np.square(update, dtype=np.float64).sum()
    assert fine.normalised_error == pytest.approx(expected, rel=0.1)


def test_an_update_of_zeros_and_one_of_nothing():
    for zeros in (np.zeros(10), np.zeros(0)):
        row = codec_row(scheme("sdq", rate=2.0), zeros)
        assert row.normalised_error == 0.0
        assert row.payload_bytes > 0


def test_centre_distortion_takes_any_number_of_samples():
    few = centre_distortion(scheme("laplace", epsilon=4.0), samples=1000)
    many = centre_distortion(scheme("laplace", epsilon=4.0), samples=200_000)
    assert few != many
    assert many == pytest.approx(0.5, rel=0.03)


def test_all_schemes_are_shown_once_and_the_proven_hold():
    built = list(all_schemes())
    of_the_paper = 1 + 3 * len(RATES) + len(EPSILONS) * (2 + 4 * len(RATES))
    assert len(built) == len(set(built)) == of_the_paper + len(EPSILONS) * (1 + 3 + len(RATES))
    for each in built[of_the_paper:]:
        assert each.name in ("mvu", "staircase", "response")
        assert each.guarantee.epsilon <= each.epsilon * (1 + 1e-9)


def test_the_update_is_always_the_same_of_the_papers_size(update):
    assert update.shape == (7850,) == (CLASSES * (PIXELS + 1),)
    assert update.dtype == np.float32
    assert np.array_equal(update, example_update(bytes(32)))
    other = example_update(bytes(range(32)))
    assert np.abs(np.corrcoef(update, other)[0, 1]) < 0.5  # another client


def test_the_update_is_the_work_of_training(update):
    """Bright where the images are, heavier than Gaussian, a gradient of softmax."""
    rows = update.reshape(CLASSES, PIXELS + 1).astype(np.float64)
    weights = rows[:, :-1].reshape(CLASSES, 28, 28)
    assert np.all(weights[:, :, [0, -1]] == 0)  # dark pixels teach nothing
    assert weights[:, 10:18, 10:18].std() > 3 * weights[:, 2:4, :].std()
    centred = update - update.mean()
    assert np.mean(centred**4) / np.mean(centred**2) ** 2 > 3.5
    assert np.abs(rows.sum(axis=0)).max() < 1e-5 * np.abs(rows).max()
    assert (np.corrcoef(rows) - np.eye(CLASSES)).max() < 0.5  # one direction a class


def test_the_table_has_a_line_for_every_scheme(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    result = CliRunner().invoke(app, ["codec"])
    assert result.exit_code == 0, result.output
    printed = result.stdout
    for name in {each.name for each in all_schemes()}:
        assert re.search(rf"^\W*{re.escape(name)}\s.*\d", printed, re.MULTILINE), name
    lines = [line for line in printed.splitlines() if line.rstrip(" │").count("%") == 1]
    assert len(lines) == len(list(all_schemes()))
    assert "One update of 7,850 parameters (31,400 bytes as float32)" in printed
    assert re.search(r"^\W*jopeq\s+Z\s+1\s+4\.00\s+10\.12\s+1\.00\s", printed, re.MULTILINE)


def test_the_columns_are_those_of_the_row(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    update = np.linspace(-1.0, 1.0, 100, dtype=np.float32)
    only = scheme("sdq", rate=4.0)
    row = codec_row(only, update)
    command = import_module("jopeq.cli.codec")
    monkeypatch.setattr(command, "example_update", lambda: update)
    monkeypatch.setattr(command, "all_schemes", lambda: [only])
    text = CliRunner().invoke(app, ["codec"]).stdout
    line = next(line for line in text.splitlines() if "sdq" in line)
    assert f"{row.payload_bytes:,}" in line
    assert f"{row.distortion:.4g}" in line
    assert "none" in line  # no ε
