"""What the page says of Theorem III.3 follows from the numbers."""

import pytest

from jopeq.experiments.theory_page_noise_share import noise_share_section


@pytest.fixture
def part(kept_theory):
    return kept_theory["noise_share"]


def _read(part):
    text, row = noise_share_section(part, "figures")
    return " ".join(text.split()), row[-1]


def _first(part, is_inside):
    return next(
        (line, column)
        for line, values in enumerate(part["coarseness"])
        for column, value in enumerate(values)
        if (value >= part["boundary"]) == is_inside
    )


def test_there_is_no_privacy_in_the_region_and_a_law_outside(part):
    text, finding = _read(part)
    count = sum(value >= part["boundary"] for line in part["coarseness"] for value in line)
    assert f"ε = ∞ (at all {count} points of the map there)" in text
    assert "(on the whole map to the 6 digits kept)" in text
    assert finding.endswith("is ∞ in the whole region")


def test_a_finite_epsilon_in_the_region_is_told(part):
    line, column = _first(part, is_inside=True)
    part["exact"][line][column] = 9.0
    text, finding = _read(part)
    assert "(at 54 of 55 points of the map there)" in text
    assert finding.endswith("is ∞ at 54 of 55 points of the map there")


def test_a_departure_from_the_law_is_told(part):
    line, column = _first(part, is_inside=False)
    part["exact"][line][column] *= 1.02
    assert "(on the whole map to 2%)" in _read(part)[0]
    part["exact"][line][column] = None
    text = _read(part)[0]
    assert "(on the whole map to the 6 digits kept, but for 1 points where ε = ∞)" in text
