from xml.etree import ElementTree

from jopeq.experiments import concept_figures
from jopeq.experiments.concept_numbers import surface


def test_figures_are_drawn_alike_each_time(tmp_path, monkeypatch):
    few = surface(epsilons=(1.0, 4.0), rates=(1.0, 2.0))
    monkeypatch.setattr(concept_figures, "surface", lambda: few)
    for folder in ("one", "two"):
        concept_figures.save_concepts(tmp_path / folder)
    for name in concept_figures.FIGURES:
        texts = [(tmp_path / folder / f"{name}.svg").read_text() for folder in ("one", "two")]
        assert texts[0] == texts[1]
        assert ElementTree.fromstring(texts[0]).tag.endswith("svg")


def test_the_whole_of_every_curve_is_shown():
    from jopeq.drawing import new_figure
    from jopeq.experiments.concept_numbers import server_view

    figure = new_figure((9.0, 3.0))
    concept_figures.draw_server_view(figure)
    least = min(view.chances[view.chances > 0].min() for view in server_view())
    for panel in figure.axes:
        assert panel.get_ylim()[0] < least
        assert {line.get_drawstyle() for line in panel.lines} == {"default"}


def test_every_mark_of_the_dither_is_in_the_legend():
    from jopeq.drawing import new_figure

    figure = new_figure((9.0, 3.0))
    concept_figures.draw_cells(figure)
    second = figure.axes[1]
    named = {handle.get_marker() for handle in second.get_legend().legend_handles}
    assert named == {"o", ".", "s", "x"}
