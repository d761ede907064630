"""The lines of the picture are the numbers of the measurements."""

import pytest

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

from jopeq.experiments import speed_figure
from jopeq.experiments.speed_figure import draw_speed


@pytest.fixture
def codecs():
    """Speeds that tell every line from all others; one was not measured."""
    sizes = [1000, 10**5, 10**7]

    def speeds(place):
        return [place * 1e6 + size for size in sizes]

    names = speed_figure._SHOWN
    ways = ("encode", "decode", "eager")
    schemes = {
        name: {way: speeds(10 * i + j) for j, way in enumerate(ways, 1)}
        for i, name in enumerate(names, 1)
    }
    schemes[names[0]]["eager"][-1] = None
    return {"sizes": sizes, "copy": {"into": speeds(900), "new": speeds(800)}, "schemes": schemes}


def drawn(codecs, path, monkeypatch):
    """What the panels hold, by the label of a line, or its colour where it has none."""
    figures = []
    save = Figure.savefig

    def spy(figure, *arguments, **options):
        figures.append(figure)
        return save(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", spy)
    draw_speed(codecs, path)
    return {panel.get_title(): panel.lines for panel in figures[0].axes}


def points(line):
    return list(zip(line.get_xdata(), line.get_ydata(), strict=True))


def expected(codecs, speeds):
    pairs = zip(codecs["sizes"], speeds, strict=True)
    return [(size, speed / 1e6) for size, speed in pairs if speed is not None]


@pytest.mark.parametrize("way", ["encode", "decode"])
def test_every_line_holds_its_speeds(way, codecs, tmp_path, monkeypatch):
    lines = drawn(codecs, tmp_path / "speed.svg", monkeypatch)[way]
    labelled = {line.get_label(): line for line in lines}
    assert points(labelled["copy"]) == expected(codecs, codecs["copy"]["into"])
    assert points(labelled["new copy"]) == expected(codecs, codecs["copy"]["new"])
    for name, row in codecs["schemes"].items():
        assert points(labelled[name]) == expected(codecs, row[way])


def test_eager_versions_have_the_colour_of_their_scheme(codecs, tmp_path, monkeypatch):
    panels = drawn(codecs, tmp_path / "speed.svg", monkeypatch)
    colours = {line.get_label(): line.get_color() for line in panels["encode"]}
    dashed = {
        line.get_color(): points(line)
        for line in panels["encode"]
        if line.get_linestyle() == "--" and len(line.get_xdata())
    }
    assert dashed == {
        colours[name]: expected(codecs, row["eager"]) for name, row in codecs["schemes"].items()
    }
    assert "--" not in {line.get_linestyle() for line in panels["decode"]}


def test_the_same_numbers_make_the_same_file(codecs, tmp_path):
    one, two = tmp_path / "one.svg", tmp_path / "two.svg"
    draw_speed(codecs, one)
    draw_speed(codecs, two)
    assert one.read_bytes() == two.read_bytes()
    codecs["copy"]["into"][0] *= 2
    draw_speed(codecs, two)
    assert one.read_bytes() != two.read_bytes()
