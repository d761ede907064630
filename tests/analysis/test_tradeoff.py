"""Distortion against rate: the points are those of the schemes, the figure is drawn."""

from __future__ import annotations

import math

import pytest

from jopeq import scheme
from jopeq.analysis import tradeoff as module
from jopeq.analysis.tradeoff import SCHEMES, TradeoffPoint, save_tradeoff, tradeoff, tradeoff_around

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
        assert p.bias == built.bias()
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


def test_what_a_scheme_refuses_has_no_point():
    points = tradeoff(epsilons=(1.0,), rates=(1.0, 1.5, 2.0, 5.0, 6.0))
    drawn = {name: [p.rate for p in points if p.name == name] for name in SCHEMES}
    assert drawn["mvu"] == [1.0, 2.0, 5.0]  # whole bits up to 5
    assert drawn["staircase"] == [5.0, 6.0]  # at ε = 1 its outputs take more than two bits
    for name in ("laplace", "laplace+sdq", "jopeq", "response"):
        assert drawn[name] == [1.0, 1.5, 2.0, 5.0, 6.0]


def test_a_channel_that_cannot_be_solved_has_no_point():
    points = tradeoff(epsilons=(10.0,), rates=(2.0,))  # of the linear programme of mvu
    assert [p.name for p in points] == [name for name in SCHEMES if name != "mvu"]


def test_other_schemes_errors_are_not_swallowed():
    with pytest.raises(ValueError, match="rate"):
        tradeoff(epsilons=(1.0,), rates=(-1.0,))


def test_points_around_an_epsilon_and_a_rate(monkeypatch):
    asked = {}
    monkeypatch.setattr(
        module, "tradeoff", lambda epsilons, rates: asked.update(epsilons=epsilons, rates=rates)
    )
    tradeoff_around(0.7, 2.5)
    assert asked["epsilons"] == (0.35, 0.7, 1.4)
    assert asked["rates"] == [1.0, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0]


def test_the_marked_rate_and_what_hollow_means_are_said(points, tmp_path):
    save_tradeoff(tmp_path / "marked.svg", points, marked=2.5)
    save_tradeoff(tmp_path / "plain.svg", points)
    marked, plain = ((tmp_path / f"{name}.svg").read_text() for name in ("marked", "plain"))
    assert "biased by more than 0.05" in plain
    assert "R = 2.5" in marked
    assert "R = 2.5" not in plain
