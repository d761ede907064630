"""Distortion against rate: the points are those of the schemes, the figure is drawn."""

from __future__ import annotations

import math

import pytest

from jopeq import scheme
from jopeq.experiments.tradeoff import SCHEMES, TradeoffPoint, save_tradeoff, tradeoff
from jopeq.plan import edge_bias

image = pytest.importorskip("matplotlib.image")


@pytest.fixture(scope="module")
def points():
    return tradeoff(epsilons=(2.0, 4.0), rates=(1.0, 2.0, 3.0))


def test_every_scheme_at_every_rate(points):
    for name in SCHEMES:
        drawn = {(p.epsilon, p.rate) for p in points if p.name == name}
        if name == "staircase":  # entropy-coded: there from the rate on that its entropy needs
            assert drawn >= {(epsilon, rate) for epsilon in (2.0, 4.0) for rate in (2.0, 3.0)}
        else:
            assert drawn == {(e, r) for e in (2.0, 4.0) for r in (1.0, 2.0, 3.0)}


def test_the_points_are_the_schemes_own_figures(points):
    for p in points:
        parameters = {} if p.name == "laplace" else {"rate": p.rate}
        if p.name == "staircase":
            parameters["coding"] = "entropy"
        built = scheme(p.name, epsilon=p.epsilon, **parameters)
        assert (p.distortion, p.proven) == (built.distortion, built.guarantee.epsilon)
        assert p.bias == edge_bias(built)
        assert math.isfinite(p.distortion)


def test_nothing_exceeds_its_rate(points):
    for p in points:
        if p.name == "staircase":
            built = scheme("staircase", epsilon=p.epsilon, rate=p.rate, coding="entropy")
            assert built.bits_per_entry <= p.rate + 0.05


def test_response_wins_wherever_it_is_drawn(points):
    for epsilon in (2.0, 4.0):
        for rate in (2.0, 3.0):
            here = [p for p in points if (p.epsilon, p.rate) == (epsilon, rate)]
            holding = [p for p in here if p.proven <= epsilon * (1 + 1e-6)]
            assert min(holding, key=lambda p: p.distortion).name == "response"


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_figure_is_saved(suffix, points, tmp_path):
    path = tmp_path / f"tradeoff.{suffix}"
    save_tradeoff(path, points)
    assert path.stat().st_size > 10_000
    beginnings = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    assert path.read_bytes().startswith(beginnings[suffix])


def test_the_figure_has_a_panel_for_each_epsilon(points, tmp_path):
    save_tradeoff(tmp_path / "two.png", points)
    save_tradeoff(tmp_path / "one.png", [p for p in points if p.epsilon == 4.0])
    two, one = (image.imread(tmp_path / f"{name}.png") for name in ("two", "one"))
    assert two.shape[1] == pytest.approx(2 * one.shape[1], rel=0.05)
    assert two.std() > 0.05  # not a blank page


def test_the_legend_says_who_spends_more(points, tmp_path):
    path = tmp_path / "legend.svg"
    save_tradeoff(path, points)
    drawn = path.read_text()
    assert "jopeq (spends more than ε)" in drawn
    assert "response (spends more than ε)" not in drawn
    assert "ε = 4 per entry" in drawn


def test_a_scheme_without_points_is_left_out(tmp_path):
    only = [TradeoffPoint("laplace", 4.0, rate, 0.5, 4.0, 0.0) for rate in (1.0, 2.0)]
    save_tradeoff(tmp_path / "only.svg", only)
    drawn = (tmp_path / "only.svg").read_text()
    assert "laplace" in drawn
    assert "jopeq" not in drawn
