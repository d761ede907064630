"""What the page says of Theorem III.5 follows from the numbers."""

import pytest

from jopeq.experiments.theory_convergence import CLIPPED
from jopeq.experiments.theory_page_convergence import convergence_section


@pytest.fixture
def part(kept_theory):
    return kept_theory["convergence"]


def _read(part):
    text, row = convergence_section(part, "figures")
    return " ".join(text.split()), row[-1]


def _row(part, problem, split, scheme):
    return next(
        r
        for r in part["rows"]
        if (r["problem"], r["split"], r["scheme"]) == (problem, split, scheme)
    )


def test_the_rate_is_seen_below_the_bound(part):
    text, finding = _read(part)
    assert "nearer to the −1.0 of 1/t than to the −0.5 of 1/√t. At the end" in text
    assert "every seed lies below the bound as printed at every t." in text
    assert "and F − F⋆ grows (grey;" in text
    assert finding.startswith("the rate is seen (slopes −0.82 to −1.28, with JoPEQ and without);")


def test_a_slow_curve_is_named(part):
    _row(part, "logistic", "iid", "jopeq")["slope"] = -0.6
    text, finding = _read(part)
    assert "slopes of −0.60 to −1.28" in text
    assert "of 1/√t, but for logistic, iid, jopeq (−0.60). At the end" in text
    assert "with JoPEQ and without), but for logistic, iid, jopeq (−0.60);" in finding


def test_a_slow_curve_without_coding_is_no_fault_of_jopeq(part):
    _row(part, "linear", "iid", "none")["slope"] = -0.6
    text, finding = _read(part)
    assert "than to the −0.5 of 1/√t. At the end" in text
    assert "but for linear, iid, none (−0.60);" in finding


def test_a_seed_above_the_bound_is_named(part):
    row = _row(part, "linear", "heterogeneous", "jopeq")
    row["highest"][7] = 1.01 * row["printed"][7]
    text = _read(part)[0]
    assert "a seed is above the bound as printed: linear, heterogeneous, jopeq." in text
    assert "every seed lies below" not in text


def test_what_the_theorem_does_not_cover_may_be_above(part):
    for row in part["rows"]:
        if row["scheme"] == CLIPPED:
            row["highest"] = [1e9] * len(row["highest"])
    assert "every seed lies below the bound" in _read(part)[0]


def test_a_public_clip_that_converges_is_told(part):
    _row(part, "linear", "iid", CLIPPED)["slope"] = -0.4
    text, finding = _read(part)
    assert "and F − F⋆ does not grow everywhere (grey; slopes −0.40 and 0.85)" in text
    assert finding.endswith("with a public clip F − F⋆ does not grow everywhere")


def test_the_fitted_part_is_the_one_that_is_fitted(part, monkeypatch):
    assert "from 20% of the last t + φ on." in _read(part)[0]
    monkeypatch.setattr("jopeq.experiments.theory_page_convergence.TAIL", 0.35)
    assert "from 35% of the last t + φ on." in _read(part)[0]
