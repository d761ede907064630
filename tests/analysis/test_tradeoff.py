"""Distortion against rate: the points are the schemes' own figures, the figure is drawn."""

from __future__ import annotations

import math

import pytest

from jopeq import scheme
from jopeq.analysis import tradeoff as module
from jopeq.analysis.drawing import draw_mean_and_range, new_panels
from jopeq.analysis.tradeoff import SCHEMES, save_tradeoff, tradeoff, tradeoff_around

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


def test_response_wins_wherever_it_is_drawn(points):
    for epsilon in (2.0, 4.0):
        for rate in (2.0, 3.0):
            here = [p for p in points if (p.epsilon, p.rate) == (epsilon, rate)]
            holding = [p for p in here if p.proven <= epsilon * (1 + 1e-6)]
            assert min(holding, key=lambda p: p.distortion).name == "response"


def test_the_figure_has_a_panel_for_each_epsilon(points, tmp_path):
    save_tradeoff(tmp_path / "two.png", points)
    save_tradeoff(tmp_path / "one.png", [p for p in points if p.epsilon == 4.0])
    two, one = (image.imread(tmp_path / f"{name}.png") for name in ("two", "one"))
    assert two.shape[1] == pytest.approx(2 * one.shape[1], rel=0.05)
    assert two.std() > 0.05  # not a blank page


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


def test_points_around_an_epsilon_and_a_rate(monkeypatch):
    asked = {}
    monkeypatch.setattr(
        module, "tradeoff", lambda epsilons, rates: asked.update(epsilons=epsilons, rates=rates)
    )
    tradeoff_around(0.7, 2.5)
    assert asked["epsilons"] == (0.35, 0.7, 1.4)
    assert asked["rates"] == [1.0, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0]


def test_the_line_is_the_mean_and_the_band_the_range():
    _, panels = new_panels(2, (4.0, 2.0), sharey=True)
    assert len(panels) == 2
    draw_mean_and_range(panels[0], [(0.2, 0.4), (0.5, 0.9)], color="C1", label="both")
    (line,) = panels[0].lines
    assert list(line.get_xdata()) == [1, 2]
    assert line.get_ydata() == pytest.approx([0.3, 0.7])
    (band,) = panels[0].collections
    corners = {tuple(corner) for corner in band.get_paths()[0].vertices}
    assert {(1.0, 0.2), (1.0, 0.4), (2.0, 0.5), (2.0, 0.9)} <= corners


def test_the_figure_says_who_spends_more_and_marks_the_rate(points, tmp_path):
    drawn = [p for p in points if p.name != "mvu"]
    save_tradeoff(tmp_path / "tradeoff.svg", drawn, marked=2.5)
    text = (tmp_path / "tradeoff.svg").read_text()
    for words in ("jopeq (spends more than ε)", "ε = 4 per entry", "R = 2.5", "more than 0.05"):
        assert words in text
    assert "response (spends more than ε)" not in text
    assert "mvu" not in text
    with pytest.raises(ValueError, match="rate"):
        tradeoff(epsilons=(1.0,), rates=(-1.0,))
