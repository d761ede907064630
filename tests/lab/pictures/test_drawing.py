"""Names beside lines, plain numbers, and SVG files for light and dark pages."""

import re

import pytest

pytest.importorskip("matplotlib")

from jopeq.registry import SCHEMES
from jopeq_lab.pictures.colours import DARK, GREY, INK, LOOKS, ORDERED, PAGE, look_of
from jopeq_lab.pictures.drawing import (
    dress,
    name_lines,
    new_panels,
    plain_log,
    save,
    svg,
)


def drawn(ends=(1.0, 2.0)):
    figure, (panel,) = new_panels(1, 6.0)
    for (scheme, look), end in zip(LOOKS.items(), ends, strict=False):
        drawn_as = {"marker": look.marker, "color": look.colour, "label": scheme}
        panel.plot([1, 10], [1.5, end], mfc=PAGE, **drawn_as)
    dress(panel, "a title", ylim=(0, 3), ylabel="error")
    plain_log(panel, "x")
    names = [f"line {place}" + "\nand more" * (place % 3 == 1) for place in range(len(ends))]
    name_lines(panel, [(end, name, INK) for end, name in zip(ends, names, strict=True)])
    return figure, panel


def test_an_svg_file_has_a_dark_colour_for_each_of_ours(tmp_path):
    ends = [1.0 + place / 10 for place in range(len(LOOKS))]
    text = svg(drawn(ends)[0]).decode()
    style = re.search("<style>(@media .prefers-color-scheme:dark.*?)</style>", text).group(1)
    body = text.replace(style, "")
    for part, colour in re.findall("(fill|stroke): (#[0-9a-f]{6})", body):
        assert f'[style*="{part}: {colour}"]{{{part}:{DARK[colour]}!important}}' in style
    for look in LOOKS.values():
        assert f"stroke: {look.colour.lower()}" in body
    assert svg(drawn(ends)[0]).decode() == text
    save(drawn(ends)[0], tmp_path / "deep" / "one.svg")
    assert (tmp_path / "deep" / "one.svg").read_text() == text
    save(drawn(ends)[0], tmp_path / "one.png")
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("count", "shape"), [(2, (1, 2)), (3, (1, 3)), (6, (3, 2))])
def test_panels_stand_side_by_side_and_on_phones_above_one_another(count, shape, tmp_path):
    figure, panels = new_panels(count, 2.0, sharey=True)
    assert panels[0].get_gridspec().get_geometry() == shape
    figure.colorbar(panels[0].imshow([[0, 1]]), ax=panels)
    save(figure, tmp_path / "one.svg", phone=True)
    for name, wide, high in (("one", 9.2, 2 * shape[0]), ("one-phone", 5.4, 2 * count)):
        text = (tmp_path / f"{name}.svg").read_text()
        assert f'width="{72 * wide:g}pt" height="{72 * high:g}pt"' in text
    assert [panel.get_gridspec().ncols for panel in panels] == [1] * count


def test_every_scheme_has_a_look_of_its_own():
    assert set(LOOKS) == {*SCHEMES, "sphere", "clients", "records", "central"}
    assert len(set(LOOKS.values())) == len(LOOKS)
    assert look_of("raw") == LOOKS["none"]
    with pytest.raises(ValueError, match="laplas"):
        look_of("laplas, ε=4")


def contrast(one, two):
    """As WCAG 2 defines it."""

    def light(colour):
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(one), light(two)))
    return (high + 0.05) / (low + 0.05)


def test_letters_and_marks_stand_out_of_light_and_dark_pages():
    named = {look.colour.lower() for look in LOOKS.values()} | {INK, GREY}
    for colour in named:
        assert contrast(colour, PAGE) >= 4.5, colour
        assert contrast(DARK[colour], DARK[PAGE]) >= 4.5, colour
    for colour in ORDERED:
        assert contrast(colour, PAGE) >= 3.0, colour
        assert contrast(DARK[colour], DARK[PAGE]) >= 3.0, colour
