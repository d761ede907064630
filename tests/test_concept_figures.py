"""The pictures of docs/concepts.md and docs/guarantees.md show what the schemes do."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from jopeq.entries.quantized import JoPEQ
from jopeq.lab.pictures.drawing import new_figure
from tools import concept_figures
from tools.concept_figures import FIGURES, pipeline_steps

DOCS = Path(__file__).parents[1] / "docs"


def drawn(name, **options):
    draw, size = FIGURES[name]
    figure = new_figure(size)
    draw(figure, **options)
    return figure.axes


def test_the_committed_pictures_are_these(tmp_path, monkeypatch):
    shown = re.findall(r"\(figures/(concept-[^)]+)\.svg\)", (DOCS / "concepts.md").read_text())
    assert sorted(shown) == sorted(FIGURES)
    few = {name: FIGURES[name] for name in FIGURES if name != "concept-surface"}
    monkeypatch.setattr(concept_figures, "FIGURES", few)  # the surface takes its time
    concept_figures.save_concepts(tmp_path)
    drawn_now = {name: (tmp_path / f"{name}.svg").read_text() for name in few}
    for name, text in drawn_now.items():
        assert text.count("<path") == (DOCS / "figures" / f"{name}.svg").read_text().count("<path")
    name = "concept-server"  # drawn alike each time
    monkeypatch.setattr(concept_figures, "FIGURES", {name: FIGURES[name]})
    concept_figures.save_concepts(tmp_path)
    assert (tmp_path / f"{name}.svg").read_text() == drawn_now[name]


def test_the_steps_end_in_what_the_scheme_decodes(monkeypatch):
    steps = pipeline_steps()
    assert [step[0] for step in steps].count("server") == 3
    assert [step[4].split(":")[0] for step in steps if step[4]] == ["private", "shared", "shared"]
    assert set(steps[4][3]) <= {"0", "1", "2", "3"}
    monkeypatch.setattr(JoPEQ, "decode", lambda self, payload: np.zeros(4))
    with pytest.raises(AssertionError, match="do not make the payload"):
        pipeline_steps()


def test_the_server_sees_chances_and_epsilon():
    panels = drawn("concept-server")
    for panel in panels:
        chances = np.array([line.get_ydata() for line in panel.lines])
        assert chances.sum(axis=0) == pytest.approx(1.0)
        assert panel.get_ylim()[0] < chances[chances > 0].min()
    titles = "; ".join(panel.get_title(loc="left") for panel in panels)
    assert titles == "sdq: no ε; jopeq: ε = 8.05 (asked for 4); response: ε = 4.00 (asked for 4)"
    response = np.array([line.get_ydata() for line in panels[2].lines])
    factor = (response.max(axis=1) / response.min(axis=1)).max()
    assert factor == pytest.approx(math.exp(4.0), rel=1e-3)
