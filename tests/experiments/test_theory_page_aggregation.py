"""What the page says of Theorem III.4 follows from the numbers."""

import pytest

from jopeq.experiments.theory_page_aggregation import aggregation_section


@pytest.fixture
def part(kept_theory):
    return kept_theory["aggregation"]


def _read(part):
    text, row = aggregation_section(part, "figures")
    return " ".join(text.split()), row[-1]


def _row(part, features, scheme):
    return next(
        r
        for r in part["rows"]
        if (r["features"], r["scheme"], r["weights"]) == (features, scheme, "equal")
    )


def test_clipping_breaks_it_and_rotation_repairs_it(part):
    text, finding = _read(part)
    assert "and the error is above the bound from K = 500 on." in text
    assert "makes the slope −0.99, and the error is below the bound up to K = 1,000." in text
    assert finding.startswith("holds with even features")
    assert finding.endswith("above the bound from K = 500 on; `rotate=True` repairs it")


def test_the_rate_is_that_of_the_schemes(part):
    assert "ε = 4, R = 1; 12 payloads" in _read(part)[0]
    for row in part["rows"]:
        row["scheme"] = row["scheme"].replace("R = 1", "R = 2.5")
    assert "ε = 4, R = 2.5; 12 payloads" in _read(part)[0]


def test_a_bound_that_nothing_breaks(part):
    row = _row(part, "peaked", "jopeq, no overload")
    row["bound"] = [2 * value for value in row["measured"]]
    assert "and the error is below the bound up to K = 1,000. A rotation" in _read(part)[0]


def test_a_bound_that_breaks_here_and_there(part):
    row = _row(part, "peaked", "jopeq, no overload")
    row["bound"] = [2 * value for value in row["measured"]]
    row["bound"][1] = row["bound"][3] = 0.0
    assert "and the error is above the bound at K = 2 and 10. A rotation" in _read(part)[0]


def test_failures_where_it_should_hold_are_told(part):
    _row(part, "even", "jopeq, no overload")["bound"][-1] = 1e-12
    _row(part, "peaked", "jopeq, R = 1, rotated")["bound"][0] = 1e-12
    text, finding = _read(part)
    assert "give away; the error is above the bound from K = 1,000 on." in text
    assert "makes the slope −0.99, and the error is above the bound at K = 1." in text
    assert finding.startswith("does not hold with even features")
    assert finding.endswith("`rotate=True` does not repair it")


def test_the_bars_are_as_long_as_drawn(part, monkeypatch):
    monkeypatch.setattr("jopeq.experiments.theory_page_aggregation.SIGMAS", 3)
    assert "Bars: 3 standard errors." in _read(part)[0]
