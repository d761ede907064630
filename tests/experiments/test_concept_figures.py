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
