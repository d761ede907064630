"""The codec's table: what is measured agrees with what is computed, and counts what was sent."""

from __future__ import annotations

import hashlib
import itertools
import math

import numpy as np
import pytest

from jopeq import randomness, scheme
from jopeq.experiments.codec import (
    EPSILONS,
    RATES,
    all_schemes,
    centre_distortion,
    codec_row,
    paper_schemes,
)
from jopeq.experiments.example_update import example_update
from jopeq.randomness import SharedStream

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
    symbols = coded._to_symbols(centre, 0, shared, private("centre, noise")).values
    squares = np.square(coded._to_samples(symbols, 0, shared)).mean(axis=1)
    return float(squares.std()) / math.sqrt(SAMPLES)


@pytest.mark.parametrize("coded", MEASURED, ids=lambda value: value.spec)
def test_measured_is_computed(coded, update, private):
    row = codec_row(coded, update)
    error = standard_error(coded, private)
    if coded.dimension > 1:  # there the computed figure is itself a mean over draws
        error *= math.sqrt(2)
    assert abs(row.measured - row.distortion) <= 5 * error + 1e-12


@pytest.mark.parametrize("coded", MEASURED, ids=lambda value: value.spec)
def test_the_row_counts_what_was_sent(coded, update):
    row = codec_row(coded, update)
    payload, counted = coded.encode(update, statistics=True)
    entropy = getattr(coded, "coding", "") == "entropy"
    assert row.scheme == coded
    assert row.distortion == coded.distortion
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


@pytest.fixture(scope="module")
def papers():
    return list(paper_schemes())


def test_the_papers_schemes(papers):
    built = papers
    assert (
        len(built) == len(set(built)) == 1 + 3 * len(RATES) + len(EPSILONS) * (2 + 4 * len(RATES))
    )
    assert {each.name for each in built} == {
        "none",
        "sdq",
        "dq",
        "laplace",
        "t",
        "laplace+sdq",
        "t+sdq",
        "jopeq",
    }


def test_the_demo_adds_those_with_a_proof(papers):
    built = list(all_schemes())
    assert built[: len(papers)] == papers
    assert {each.name for each in built} >= {"mvu", "staircase", "response"}
    for each in built:
        if each.name in ("mvu", "staircase", "response"):
            assert each.guarantee.epsilon <= each.epsilon * (1 + 1e-9)
