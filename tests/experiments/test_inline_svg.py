from xml.etree import ElementTree

import pytest

from jopeq.experiments.drawing import new_panels
from jopeq.experiments.inline_svg import embedded, inline_svg


def _save(path):
    figure, (panel,) = new_panels(1, (3.0, 2.0))
    panel.plot([0, 1], [0, 1], color="#440154", label="a line")
    panel.legend()
    figure.savefig(path)


def test_it_is_well_formed_and_takes_the_colours_of_the_page():
    text = inline_svg(_save, "one", 'a "title" & more')
    root = ElementTree.fromstring(text)
    assert root.get("aria-label") == 'a "title" & more'
    assert root.get("width") is None
    assert "#000000" not in text
    assert "#ffffff" not in text
    assert "currentColor" in text
    assert "var(--paper)" in text
    assert "light-dark(#440154, #a180a9)" in text


def test_names_are_unique_and_references_are_kept():
    one, two = (ElementTree.fromstring(inline_svg(_save, name, "t")) for name in ("one", "two"))
    names = [{e.get("id") for e in root.iter() if e.get("id")} for root in (one, two)]
    assert names[0]
    assert not names[0] & names[1]
    links = [
        value.removeprefix("url(").rstrip(")").removeprefix("#")
        for element in one.iter()
        for key, value in element.attrib.items()
        if key.endswith("href") or value.startswith("url(#")
    ]
    assert links
    assert set(links) <= names[0]


def test_the_same_figure_gives_the_same_text():
    assert inline_svg(_save, "one", "t") == inline_svg(_save, "one", "t")


@pytest.mark.parametrize("text", ["", "<p>no figure</p>", "<svg></svg>"])
def test_what_is_no_figure_is_refused(text):
    with pytest.raises(ValueError, match="'one' is no SVG"):
        embedded(text, "one", "t")
