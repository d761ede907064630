"""log, exp and circle: close to NumPy's, the same bits however evaluated; e^ε and ln as bounds."""

import hashlib
import math
from fractions import Fraction

import numpy as np
import pytest

from jopeq.random import portable
from jopeq.random.rational import exp_floor, log_ceiling


def units_in_last_place(found, expected):
    return np.abs(found - expected) / np.spacing(np.abs(expected))


def log_inputs():
    rng = np.random.default_rng(1)
    edges = [math.sqrt(0.5), np.nextafter(math.sqrt(0.5), 0), math.sqrt(2), 2.0**-76]
    return np.concatenate((
        rng.random(50_000), np.exp2(-76 * rng.random(50_000)),
        np.exp2(1000 * rng.uniform(-1, 1, 20_000)), 1.0 + rng.uniform(-1e-3, 1e-3, 20_000),
        1.0 + np.array([2.0**-52, -(2.0**-53), 2.0**-30, -(2.0**-30)]), edges,
        2.0 ** np.arange(-76, 77),
    ))  # fmt: skip


def exp_inputs():
    rng = np.random.default_rng(2)
    return np.concatenate(
        (rng.uniform(-700, 700, 50_000), rng.uniform(-1, 1, 50_000), rng.uniform(-1e-9, 1e-9, 100))
    )


def circle_words():
    rng = np.random.default_rng(3)
    words = rng.integers(0, 1 << 64, 100_000, dtype=np.uint64)
    edges = [(q << 62) | place for q in range(4) for place in (0, (1 << 62) - 1, 1 << 61)]
    return np.concatenate((words, np.array(edges, dtype=np.uint64)))


def test_log_and_exp_are_accurate_to_the_last_places():
    """Against NumPy's, and some of them against mpmath's 400 digits."""
    mpmath = pytest.importorskip("mpmath")
    inputs = {"log": log_inputs(), "exp": exp_inputs(), "expm1": np.abs(exp_inputs())}
    for name, x in inputs.items():
        ours, theirs = getattr(portable, name), getattr(np, name)
        away = x[(x != 1.0) & (x != 0.0)]
        most = 4.0 if name == "expm1" else 2.0
        assert units_in_last_place(ours(away), theirs(away)).max() <= most
        some = away[::97]
        with mpmath.workdps(400):
            exact = [getattr(mpmath, name)(mpmath.mpf(value)) for value in some.tolist()]
            pairs = zip(ours(some).tolist(), exact, strict=True)
            assert max(abs((mpmath.mpf(found) - truth) / truth) for found, truth in pairs) < 2e-15
    assert portable.log(np.array([1.0]))[0] == 0.0
    assert portable.exp(np.array([0.0]))[0] == 1.0


def test_circle_is_accurate_and_on_the_circle():
    words = circle_words()
    x, y = portable.circle(words)
    place = ((words >> np.uint64(10)) & np.uint64((1 << 52) - 1)).astype(float)
    quadrant = (words >> np.uint64(62)).astype(float)
    angle = (quadrant + (place + 0.5) * 2.0**-52 - 0.5) * (math.pi / 2)
    assert np.abs(x - np.cos(angle)).max() < 1.5e-15  # the angle itself is rounded up to 3π/2
    assert np.abs(y - np.sin(angle)).max() < 1.5e-15
    assert np.abs(x * x + y * y - 1.0).max() < 5e-16


@pytest.mark.parametrize("function", ["log", "exp", "circle"])
def test_entries_do_not_depend_on_the_array_around_them(function):
    """Vector loops and their remainders must round alike."""
    x = {"log": log_inputs, "exp": exp_inputs, "circle": circle_words}[function]()[::37]
    evaluate = getattr(portable, function)
    whole = np.asarray(evaluate(x))
    assert np.array_equal(whole[..., ::3], np.asarray(evaluate(x[::3])))
    assert np.array_equal(whole[..., 5:], np.asarray(evaluate(x[5:])))
    one_by_one = [np.asarray(evaluate(x[i : i + 1])) for i in range(300)]
    assert np.array_equal(whole[..., :300], np.concatenate(one_by_one, axis=-1))


def test_nothing_but_arithmetic_is_used(monkeypatch):
    def forbidden(*args, **kwargs):
        raise AssertionError("a library function was used")

    names = "log log2 log10 log1p exp exp2 expm1 sin cos tan arctan arctan2 power float_power sinh"
    for name in names.split():
        monkeypatch.setattr(np, name, forbidden)
    for name in ("exp", "sin", "cos", "pow"):
        monkeypatch.setattr(math, name, forbidden)
    portable.log(np.array([0.3, 2.0]))
    portable.circle(np.array([1, 1 << 63], dtype=np.uint64))
    monkeypatch.setattr(math, "log", lambda x: {2.0: 0.6931471805599453}[x])  # a constant
    portable.exp(np.array([0.3, -2.0]))


GRID = np.arange(1, 40_001) / 1024.0
GOLDEN = {
    "log": (GRID, "e058153822a80e026073730b805d844b"),
    "exp": (GRID - 20.0, "e3d9fc87b51db66f3d117195c388b07b"),
    "expm1": (GRID, "91501e888856a316a2f8e6288cacc9dc"),
    "circle": (
        np.arange(40_000, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15),
        "7eb7030c3709d164fda4f2d4200aa100",
    ),
}


@pytest.mark.parametrize("function", GOLDEN)
def test_golden_values(function):
    """To the last bit, on every machine."""
    x, expected = GOLDEN[function]
    found = np.array(getattr(portable, function)(x)).astype("<f8").tobytes()
    assert hashlib.sha256(found).hexdigest()[:32] == expected


def exp_series(x):
    """Partial sums of the exponential series are below e^x, and here by less than 1e-40."""
    term, total = Fraction(1), Fraction(1)
    for n in range(1, 160):
        term *= Fraction(x) / n
        total += term
    return total


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5, 1.0, 2.5, 4.0, 5.5, 8.0, 16.0, 30.0])
def test_exp_floor_is_just_below(epsilon):
    gap = exp_series(epsilon) - exp_floor(epsilon)
    assert 0 < gap < exp_floor(epsilon) / 10**50


@pytest.mark.parametrize("ratio", [Fraction(3, 2), Fraction(2718281828, 10**9), Fraction(55, 1)])
def test_log_ceiling_is_the_smallest_float_above_the_truth(ratio):
    found = log_ceiling(ratio)
    assert exp_series(found) >= ratio
    assert exp_series(math.nextafter(found, 0)) < ratio
    assert log_ceiling(Fraction(7, 7)) == 0.0
    assert exp_floor(1e300) == exp_floor(64.0) > 2**64  # beyond all counts
