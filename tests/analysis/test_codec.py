"""``jopeq codec``: one real update through every scheme."""

import math
import re
from importlib import import_module

import numpy as np
import pytest
from typer.testing import CliRunner

from jopeq import scheme
from jopeq.analysis import codec
from jopeq.cli import app


@pytest.fixture(scope="module")
def update():
    return codec.example_update()


@pytest.mark.parametrize("name", ["sdq", "response", "staircase"])
def test_a_row_measures_what_is_sent(name, update):
    parameters = {"sdq": {"rate": 8.0, "spread": 30.0}, "response": {"epsilon": 4.0, "rate": 2.0}}
    coded = scheme(name, **parameters.get(name, {"epsilon": 2.0}))
    row = codec.codec_row(coded, update)
    payload, counted = coded.encode(update, counts=True)
    slack = 100 if name == "staircase" else 0  # an entropy coder's length depends on its noise
    assert abs(row.payload_bytes - len(payload)) <= slack
    assert row.bits_per_entry == pytest.approx(counted.bits_per_entry, abs=slack / 1000)
    assert row.distortion == coded.distortion
    assert row.measured == pytest.approx(row.distortion, rel=0.05)
    if name == "sdq":  # nothing is clipped at this spread: Δ²/12 an entry, in units of 30‖h‖/√M
        step = 2 / 255 * 30.0 * np.linalg.norm(update) / math.sqrt(update.size)
        expected = update.size * step**2 / 12 / np.square(update, dtype=np.float64).sum()
        assert row.normalised_error == pytest.approx(expected, rel=0.1)
    for zeros in (np.zeros(10), np.zeros(0)):
        assert codec.codec_row(scheme("none"), zeros).normalised_error == 0.0


@pytest.fixture(scope="module")
def every():
    return list(codec.all_schemes())


def test_all_schemes_are_shown_once_and_the_proven_hold(every):
    epsilons, rates = len(codec.EPSILONS), len(codec.RATES)
    of_the_paper = 1 + 3 * rates + epsilons * (2 + 4 * rates)
    assert len(every) == len(set(every)) == of_the_paper + epsilons * (1 + 3 + rates)
    for each in every[of_the_paper:]:
        assert each.name in ("mvu", "staircase", "response")
        assert each.guarantee.epsilon <= each.epsilon * (1 + 1e-9)


def test_the_update_is_the_work_of_training(update):
    """Bright where the images are, heavier than Gaussian, a gradient of softmax."""
    assert update.shape == (7850,) == (codec.CLASSES * (codec.PIXELS + 1),)
    assert np.array_equal(update, codec.example_update(bytes(32)))
    rows = update.reshape(codec.CLASSES, codec.PIXELS + 1).astype(np.float64)
    weights = rows[:, :-1].reshape(codec.CLASSES, 28, 28)
    assert np.all(weights[:, :, [0, -1]] == 0)  # dark pixels teach nothing
    centred = update - update.mean()
    assert np.mean(centred**4) / np.mean(centred**2) ** 2 > 3.5
    assert np.abs(rows.sum(axis=0)).max() < 1e-5 * np.abs(rows).max()


def test_the_table_has_a_line_for_every_scheme(monkeypatch, every):
    monkeypatch.setenv("COLUMNS", "200")
    shown = [scheme("jopeq", epsilon=4.0, rate=1.0), *every[::12]]
    monkeypatch.setattr(import_module("jopeq.cli.codec"), "all_schemes", lambda: shown)
    result = CliRunner().invoke(app, ["codec"])
    assert result.exit_code == 0, result.output
    printed = result.stdout
    lines = [line for line in printed.splitlines() if line.rstrip(" │").count("%") == 1]
    assert len(lines) == len(shown)
    assert re.search(r"^\W*jopeq\s+Z\s+1\s+4\.00\s+10\.12\s+1\.00\s", printed, re.MULTILINE)
