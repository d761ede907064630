"""Nothing of theory.json is missing on the page; ∞ is ∞."""

import pytest

from jopeq.experiments.report_html import html_page
from jopeq.experiments.report_records import Configurations
from jopeq.experiments.report_theory import theory_section


@pytest.fixture
def shown(monkeypatch, read_html):
    """Parts → tables by caption, without figures, which are drawn elsewhere."""
    monkeypatch.setattr("jopeq.experiments.theory_figures.FIGURES", {})

    def make(parts):
        section = theory_section(parts, Configurations(), [])
        page = read_html(html_page("", "", [section], []))
        captions = [table.caption for table in section.tables]
        return dict(zip(captions, page.tables, strict=True))

    return make


def _columns(table):
    head, *rows = table
    return {name: [row[index] for row in rows] for index, name in enumerate(head)}


def test_errors_and_bounds_by_the_number_of_clients(parts, shown):
    part = parts["aggregation"]
    tables = shown({"aggregation": part})
    fields = ("counts", "measured", "error", "exact", "bound")
    found = _columns(tables.get("aggregation: rows, place by place") or tables["aggregation: rows"])
    for name in fields:
        kept = [value for row in part["rows"] for value in row[name]]
        texts = [text for cell in found[name] for text in cell.split(", ")]
        assert [float(text.replace(",", "")) for text in texts] == pytest.approx(kept, rel=1e-3)


def test_p_values_overload_and_the_control(kept_theory, shown):
    part = kept_theory["dither"]
    tables = shown({"dither": part})
    lattices = _columns(tables["dither: lattices"])
    shared = [[float(p) for p in cell.split(", ")] for cell in lattices["p_coordinate"]]
    for mine, row in zip(shared, part["lattices"], strict=True):
        assert mine == pytest.approx(row["p_coordinate"], rel=1e-3)
    assert _columns(tables["dither: control"])["scheme"] == ["dq"]
    overload = _columns(tables["dither: overload, place by place"])
    kept = [value for row in part["overload"] for value in row["overloaded"]]
    assert [float(text) for text in overload["overloaded"]] == pytest.approx(kept, rel=1e-3)
    assert overload["lattice"][:: len(part["overload"][0]["radii"])] == ["Z", "A2", "D4", "E8"]
    bridges = _columns(tables["dither: lattices, place by place"])
    assert float(bridges["bridges 8"][-2]) == pytest.approx(
        part["lattices"][-1]["bridges"][7][-2], rel=1e-3
    )
    assert bridges["bridges 8"][0] == "–"  # Z has one coordinate


def test_the_map_has_a_row_for_each_pair_and_infinity_where_json_has_null(kept_theory, shown):
    part = kept_theory["noise_share"]
    tables = shown({"noise_share": part})
    found = _columns(tables["noise_share: map, place by place"])
    width = len(part["epsilons"])
    assert len(found["exact"]) == width * len(part["letters"])
    for row, column in ((0, 0), (3, 17), (18, 45)):
        place = row * width + column
        assert int(found["letters"][place]) == part["letters"][row]
        assert float(found["epsilons"][place]) == pytest.approx(part["epsilons"][column], rel=1e-3)
        assert float(found["share"][place]) == pytest.approx(part["share"][row][column], abs=1e-3)
    nulls = [value is None for row in part["exact"] for value in row]
    assert [text == "∞" for text in found["exact"]] == nulls
    examples = _columns(tables["noise_share: examples"])["exact"]
    assert [text == "∞" for text in examples] == [one["exact"] is None for one in part["examples"]]
    assert "∞" in examples
    assert "–" not in examples


def test_objects_are_tables_too(kept_theory, shown):
    tables = shown({name: kept_theory[name] for name in ("convergence", "total_error")})
    start = kept_theory["convergence"]["from_optimum"]
    single = _columns(tables["convergence: from_optimum"])
    assert float(single["slope"][0]) == pytest.approx(start["slope"], rel=1e-3)
    assert len(single["slopes"][0].split(", ")) == len(start["slopes"])
    long = _columns(tables["convergence: from_optimum, place by place"])
    assert [float(text) for text in long["losses"]] == pytest.approx(start["losses"], rel=1e-3)
    densities = _columns(tables["total_error: densities, place by place"])
    curve = kept_theory["total_error"]["densities"]["curves"]["staircase"]
    assert [float(text) for text in densities["curves: staircase"]] == pytest.approx(
        curve, rel=1e-3
    )


def test_no_field_is_dropped(parts, shown):
    """Every name of the file is a column, a caption or a setting."""
    tables = shown(parts)
    words = {word for caption, table in tables.items() for word in (caption, *table[0])}
    for part in parts.values():
        for key, value in part.items():
            rows = value if isinstance(value, list) else [value]
            inner = {name for row in rows if isinstance(row, dict) for name in row}
            if key in ("effort", "versions"):
                continue
            for name in inner or ({key} if isinstance(value, list) else set()):
                assert any(
                    name == word or word.startswith((f"{name} ", f"{name}: ")) for word in words
                )


def test_a_map_of_another_shape_is_refused(shown):
    part = {"letters": [2, 4], "epsilons": [1.0, 2.0], "share": [[0.1, 0.2], [0.3]]}
    with pytest.raises(ValueError, match="2 rows of 2"):
        shown({"noise_share": part})
