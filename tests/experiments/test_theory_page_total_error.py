"""What the page says of Theorems III.1 and III.2 follows from the numbers."""

import pytest

from jopeq.experiments import theory_page_total_error
from jopeq.experiments.theory_page_total_error import total_error_section


@pytest.fixture
def part(kept_theory):
    return kept_theory["total_error"]


def _read(part):
    text, row = total_error_section(part, "figures")
    return " ".join(text.split()), row[-1]


def test_payloads_and_staircase_do_as_computed(part):
    text, finding = _read(part)
    assert "Payloads agree with these numbers" in text
    assert "`staircase` does what the theorems wanted, for a law of its own" in text
    assert "which is half a step of the dither, for ε = 1, 2, 3, 4, 6 and 8;" in text
    assert finding.endswith("`staircase` has its own law exactly")


def test_the_inputs_are_counted(part, monkeypatch):
    assert "Over all 65,536 dithers and 33 inputs" in _read(part)[0]
    monkeypatch.setattr(theory_page_total_error, "INPUTS", [0.0] * 7)
    assert "Over all 65,536 dithers and 7 inputs" in _read(part)[0]


def test_payloads_that_differ_are_named(part):
    part["checked"][1]["measured"] += 0.02
    text = _read(part)[0]
    assert "Payloads do not, on Z at ε = 4, R = 1, agree with these numbers" in text


@pytest.mark.parametrize(("key", "value"), [("kolmogorov", 1.6e-5), ("measured", 0.03)])
def test_a_staircase_without_its_law_is_named(part, key, value):
    part["staircase"][3][key] = value
    text, finding = _read(part)
    assert "should do what the theorems wanted, but at ε = 4 does not, for a law" in text
    assert ("which is 1 steps of the dither" in text) == (key == "kolmogorov")
    assert finding.endswith("`staircase` at ε = 4 misses its law")


def test_how_far_staircase_is_from_laplace_is_told(part):
    for index, row in enumerate(part["staircase"]):
        row["from_laplace"] = 0.3 + index / 10
    assert "its total variation is 0.30 to 0.80." in _read(part)[0]
