"""The figures show the numbers of their part, and are written together or not at all."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from jopeq.errors import DataError
from jopeq.experiments.drawing import new_figure
from jopeq.experiments.theory_figures import FIGURES, save_figures


def draw(name, parts):
    part, draw_part, size = FIGURES[name]
    figure = new_figure(size)
    draw_part(parts[part], figure)
    return figure


def curves(panel):
    return [(list(line.get_xdata()), list(line.get_ydata())) for line in panel.lines]


def test_total_errors_are_those_of_the_part(parts):
    part = parts["total_error"]
    first, second, third, *_ = draw("theory-total-error", parts).axes
    shown = part["densities"]
    assert curves(first) == [(shown["x"], values) for values in shown["curves"].values()]
    for panel, key in ((second, "line"), (third, "plane")):
        for epsilon in {row["epsilon"] for row in part[key]}:
            rows = [row for row in part[key] if row["epsilon"] == epsilon]
            wanted = [row["rate"] for row in rows], [row["kolmogorov"] for row in rows]
            assert wanted in curves(panel)


def test_overloads_are_percent_of_the_part(parts):
    part = parts["dither"]
    _, right, *_ = draw("theory-dither", parts).axes
    *lines, _edge = curves(right)
    for row, (x, y) in zip(part["overload"], lines, strict=True):
        assert x == row["radii"]
        assert y == pytest.approx([100 * share for share in row["overloaded"]])


def test_shares_are_percent_of_the_part(parts):
    part = parts["noise_share"]
    left, right, *_ = draw("theory-noise-share", parts).axes
    shares = np.asarray(left.collections[0].get_array())
    assert shares.ravel() == pytest.approx(100 * np.ravel(part["share"]))
    ratios = right.collections[0].get_array()
    exact = np.array(part["exact"], dtype=float)  # None, which is ∞, becomes NaN
    assert np.array_equal(np.ma.getmaskarray(ratios).ravel(), np.isnan(exact).ravel())
    found, wanted = ratios.compressed(), (exact / part["epsilons"])[~np.isnan(exact)]
    assert found == pytest.approx(wanted)


def test_averages_lie_beside_their_bound(parts):
    panels = draw("theory-aggregation", parts).axes
    for panel, features in zip(panels, ("even", "peaked"), strict=True):
        rows = [
            row
            for row in parts["aggregation"]["rows"]
            if row["features"] == features and row["weights"] == "equal"
        ]
        for row in rows:
            assert (row["counts"], row["measured"]) in curves(panel)
        for kind in ("exact", "bound"):
            assert (rows[0]["counts"], rows[0][kind]) in curves(panel)


def test_convergence_shows_every_run_and_both_bounds(parts):
    rows = parts["convergence"]["rows"]
    figure = draw("theory-convergence", parts)
    shown = [curve for panel in figure.axes for curve in curves(panel)]
    kinds = {"jopeq": ("losses", "printed", "corrected")}
    for row in rows:
        for kind in kinds.get(row["scheme"], ("losses",)):
            assert (row["times"], row[kind]) in shown
    row = parts["convergence"]["from_optimum"]
    shown = curves(draw("theory-constant", parts).axes[0])
    assert shown == [
        (row["times"], row[kind]) for kind in ("losses", "printed", "proof", "corrected")
    ]


def test_the_same_numbers_make_the_same_files(quick_theory, tmp_path):
    for folder in ("one", "two"):
        save_figures(quick_theory[1], tmp_path / folder)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == sorted(f"{name}.svg" for name in FIGURES)
    for name in files:
        one, two = ((tmp_path / folder / name).read_bytes() for folder in ("one", "two"))
        assert one == two


def test_none_is_written_unless_all_can_be_drawn(quick_theory, tmp_path):
    parts = dict(quick_theory[1])
    parts["convergence"] = {}
    with pytest.raises(DataError, match="part 'convergence'"):
        save_figures(parts, tmp_path / "figures")
    assert not (tmp_path / "figures").exists()


@pytest.mark.parametrize("name", FIGURES)
def test_a_part_that_lacks_something_is_named(name):
    part = FIGURES[name][0]
    with pytest.raises(DataError, match=f"theory.json, part '{part}': it lacks"):
        draw(name, {part: {}})
