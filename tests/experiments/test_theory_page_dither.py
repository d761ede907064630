"""What the page says of Theorem II.5 follows from the numbers, also where they contradict it."""

import pytest

from jopeq.experiments.theory_page_dither import dither_section


@pytest.fixture
def part(kept_theory):
    return kept_theory["dither"]


def _read(part):
    text, row = dither_section(part, "figures")
    return " ".join(text.split()), row[-1]


def test_it_holds_on_what_was_measured(part):
    text, finding = _read(part)
    assert "It holds on Z, A2, D4 and E8: the smallest of 27 p-values" in text
    assert "No error left its cell." in text
    assert "The same test of the same size rejects dither that is not subtracted" in text
    assert finding.startswith("holds on Z, A2, D4 and E8; but")


def test_a_lattice_less_is_not_listed(part):
    part["lattices"] = part["lattices"][:2]
    assert "It holds on Z and A2: the smallest of 9 p-values" in _read(part)[0]


@pytest.mark.parametrize("key", ["p_joint", "p_input", "p_neighbour", "p_coordinate"])
def test_a_small_p_value_is_an_exception(part, key):
    # 1 − 0.99^(1/27) = 3.7e-4 is the least that 27 tests may show
    for value, is_broken in ((3.8e-4, False), (3.6e-4, True), (0.0, True)):
        row = part["lattices"][1]
        row[key] = [0.5, value] if key == "p_coordinate" else value
        text, finding = _read(part)
        assert ("It holds on Z, D4 and E8, but not on A2 (p = " in text) == is_broken
        assert finding.startswith("holds on Z, D4 and E8, but not on A2") == is_broken
        assert ("It holds on Z, A2, D4 and E8:" in text) != is_broken


def test_errors_outside_the_cell_are_counted(part):
    part["lattices"][2]["outside"] = 1234
    text, finding = _read(part)
    assert "Errors that left their cell: 1,234 (D4)." in text
    assert "No error left its cell" not in text
    assert "but not on D4 (errors outside the cell)" in finding


def test_a_wrong_second_moment_is_an_exception(part):
    part["lattices"][0]["second_moment_sigmas"] = -5.1
    assert "but not on Z (second moment)" in _read(part)[0]


def test_it_may_hold_nowhere(part):
    for row in part["lattices"]:
        row["p_input"] = 1e-9
    text, finding = _read(part)
    assert "It does not hold on Z (p = 1e-09), A2 (p = 1e-09)," in text
    assert finding.startswith("does not hold on Z")


def test_a_control_that_passes_is_no_control(part):
    part["control"].update(p_input=0.3, scheme="dq", lattice="E8")
    text = _read(part)[0]
    assert "does not reject dither that is not subtracted (`dq`, E8): p = 0.3." in text


def test_the_condition_is_blamed_only_for_overload(part):
    for row in part["overload"]:
        row["overloaded"] = [0.0] * len(row["overloaded"])
    text, finding = _read(part)
    assert "The condition suffices: at ‖x‖ = γ no sample overloads at R = 2" in text
    assert "overload" not in finding
