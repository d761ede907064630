import pytest

from jopeq.analysis.drawing import draw_mean_and_range, new_panels


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
