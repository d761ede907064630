"""Theorem III.5: the constants, and which of them the proof's own recursion respects."""

import dataclasses

import numpy as np
import pytest

from jopeq.analysis.theory import FORMS, ConvergenceBound

BOUND = ConvergenceBound(
    tau=4,
    convexity=0.2,
    smoothness=1.0,
    gap=0.3,
    variance=0.5,
    weights=(0.25, 0.75),
    gradient_bounds=(4.0, 1.0),
    start=2.0,
)


def test_the_constants_by_hand():
    shares = 0.25**2 * 4 + 0.75**2
    expected = (1 + 36 * 16 * 0.5) * shares + 6 * 1.0 * 0.3 + 8 * 9 * (0.25 * 4 + 0.75)
    assert BOUND.b == pytest.approx(expected)
    assert BOUND.phi == 4 * 4 * 1.0 / 0.2
    assert float(BOUND.step_size(0)) == pytest.approx(1 / (4 * BOUND.smoothness))
    printed = max((0.2**2 + 16 * expected) / (4 * 0.2), BOUND.phi * 2.0)
    assert float(BOUND.at(20, "printed")) == pytest.approx(0.5 * printed / (20 + BOUND.phi))
    assert BOUND.constant("proof") == pytest.approx((0.2**2 + 16 * expected) / (4 * 0.2**2))


@pytest.mark.parametrize("tau", [2, 3, 10])
@pytest.mark.parametrize("start", [0.0, 1e4])
def test_the_corrected_constant_bounds_the_recursion(tau, start):
    bound = dataclasses.replace(BOUND, tau=tau, start=start)
    assert max(bound.recursion(5000)) <= bound.constant("corrected") * (1 + 1e-12)


@pytest.mark.parametrize("form", ["printed", "proof"])
def test_the_papers_constants_do_not(form):
    bound = dataclasses.replace(BOUND, tau=2, start=0.0)
    assert max(bound.recursion(20_000)) > 1.5 * bound.constant(form)


def test_the_recursion_comes_as_close_as_one_likes_to_the_corrected_constant():
    bound = dataclasses.replace(BOUND, start=0.0)
    assert max(bound.recursion(40_000)) > 0.99 * bound.constant("corrected")


def test_units_do_not_matter_but_to_the_printed_bound():
    """A loss a hundred times smaller: curvatures and gap fall by 100, squared gradients by 100²."""
    small = dataclasses.replace(
        BOUND,
        convexity=BOUND.convexity / 100,
        smoothness=BOUND.smoothness / 100,
        gap=BOUND.gap / 100,
        gradient_bounds=tuple(xi / 100**2 for xi in BOUND.gradient_bounds),
        start=0.0,
    )
    large = dataclasses.replace(BOUND, start=0.0)
    ratios = {form: float(large.at(100, form) / small.at(100, form)) for form in FORMS}
    assert ratios["corrected"] == pytest.approx(100)
    assert ratios["printed"] == pytest.approx(100**2)


def test_one_local_step_has_no_constant():
    bound = dataclasses.replace(BOUND, tau=1, start=0.0)
    assert bound.constant("corrected") == np.inf
    scaled = list(bound.recursion(20_000))
    assert scaled[-1] > 1.3 * scaled[2000]  # grows as log t


def test_bad_constants_are_refused():
    with pytest.raises(ValueError, match="tau must be at least 1, got 0"):
        dataclasses.replace(BOUND, tau=0)
    with pytest.raises(ValueError, match="convexity <= smoothness"):
        dataclasses.replace(BOUND, convexity=2.0)
    with pytest.raises(ValueError, match="as many"):
        dataclasses.replace(BOUND, weights=(1.0,))
    with pytest.raises(ValueError, match="form must be one of printed, proof, corrected"):
        BOUND.constant("best")
