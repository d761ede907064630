import pytest

from jopeq.experiments.attack_cells import (
    Cell,
    fig4_cells,
    fig5_schemes,
    fig6_cells,
    figure_cells,
    method_cells,
)


def test_the_figures_are_those_of_the_paper():
    assert {cell.epoch for cell in fig4_cells()} == set(range(31))
    assert {cell.scheme.name for cell in fig4_cells()} == {"none", "sdq", "jopeq", "response"}
    assert min(e for _, e in fig5_schemes()) == 10.0
    assert max(e for _, e in fig5_schemes()) == pytest.approx(1e5)


def test_the_table_of_figure_6_has_all_methods():
    assert figure_cells("fig4") == list(fig4_cells())
    assert figure_cells("fig6") == [*fig6_cells(), *method_cells()]
    with pytest.raises(ValueError, match=r"fig4, fig5, fig6, got 'fig9'"):
        figure_cells("fig9")


def test_a_cell_is_attacked_as_its_method_and_variant_say():
    spec = fig5_schemes()["laplace", 10.0].spec
    plain, published = Cell("a", spec), Cell("b", spec, variant="published")
    assert plain.key != published.key
    assert plain.key == Cell("another label", spec).key
    assert (plain.config().start, plain.config().line_search) == ("grey", "wolfe")
    assert (published.config().start, published.config().line_search) == ("normal", "none")
    assert plain.config(7).iterations == 7
