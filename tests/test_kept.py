"""Numbers kept on disk between processes."""

import numpy as np
import pytest

import jopeq
from jopeq.kept import Kept
from jopeq.noise import gaussian_rounding
from jopeq.noise.gaussian_rounding import GaussianRounding
from jopeq.sums import record_accounting, record_plan

TERMS = {"epsilon": 2.0, "clip": 1.0, "records": 900, "sampling": 0.3, "rounds": 11}
SCHEME = jopeq.RecordSum(**TERMS, clients=4, threshold=3)

MODULES = (record_plan, record_accounting, gaussian_rounding)
CACHED = [f for module in MODULES for f in vars(module).values() if hasattr(f, "cache_clear")]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("JOPEQ_PLANS", str(tmp_path / "plans"))
    forget()
    yield tmp_path / "plans"
    forget()


def forget():
    """As a new process."""
    for one in CACHED:
        one.cache_clear()


def test_another_process_computes_nothing_again(folder, monkeypatch):
    plan = SCHEME.plan(30)
    files = list(folder.iterdir())
    assert len(files) >= 3
    assert all(file.stat().st_mode & 0o077 == 0 for file in (folder, *files))
    forget()
    for module, name in ((record_accounting, "_distribution"), (gaussian_rounding, "_rows")):
        monkeypatch.setattr(module, name, lambda *_: pytest.fail("computed again"))
    again = SCHEME.plan(30)
    assert again == plan
    assert np.array_equal(again.law.thresholds, plan.law.thresholds)
    assert again.law.variation == plan.law.variation


@pytest.mark.parametrize("change", ["cut", "flip", "others can write"])
def test_what_is_damaged_or_not_surely_ours_is_computed_again(folder, change):
    plan = SCHEME.plan(30)
    for file in folder.iterdir():
        data = file.read_bytes()
        file.write_bytes(data[:-1] if change == "cut" else data[:-1] + bytes([data[-1] ^ 1]))
        if change == "others can write":
            file.write_bytes(data)
            file.chmod(0o622)
    forget()
    assert SCHEME.plan(30) == plan


def test_false_numbers_are_noticed(folder, monkeypatch):
    """An ε that is too small, and thresholds of less noise, in files that look sound."""
    run = (SCHEME.spend(30, 11),)
    true = record_accounting.epsilon_of(run, 1e-5, 2.0)
    monkeypatch.setattr(record_accounting._KEPT, "find", lambda *_: b"1.2")
    assert record_accounting.epsilon_of(run, 1e-5, 2.0) == true
    law = GaussianRounding(150, 4096)
    expected = law.thresholds
    narrow = np.sort(expected // 2 + np.uint64(1 << 62), axis=1)
    told = str(law.variation).encode().ljust(gaussian_rounding._DIGITS) + narrow.tobytes()
    monkeypatch.setattr(gaussian_rounding._KEPT, "find", lambda *_: told)
    assert np.array_equal(GaussianRounding(150, 4096).thresholds, expected)


def test_junk_that_looks_sound_is_computed_again(monkeypatch):
    run = (record_accounting.RecordRounds(30.0, 1.0, 1, 30),)
    given = (0.6568, 1e-5, 1.0, 30, 1)
    true = record_accounting.epsilon_of(run, 1e-5, 1.0)
    least = record_accounting.least_multiplier(*given)
    law = GaussianRounding(150, 4096)
    words = (b"", b"junk", b"\xff", b"nan", b"inf", b"snan")
    for junk in (*words, b"-1.0", b"-1e-60", b"0", b"1e-12", b"2.0", b"29.99"):
        rows = junk.ljust(gaussian_rounding._DIGITS) + law.thresholds.tobytes()
        monkeypatch.setattr(record_accounting._KEPT, "find", lambda *_, junk=junk: junk)
        monkeypatch.setattr(gaussian_rounding._KEPT, "find", lambda *_, rows=rows: rows)
        forget()
        assert record_accounting.epsilon_of(run, 1e-5, 1.0) == true
        assert record_accounting.least_multiplier(*given) == least
        assert GaussianRounding(150, 4096).variation == law.variation


def test_every_variation_that_is_computed_is_below_the_bound_of_kept_ones():
    for sigma64 in (20, 64, 150, 640, 3000):
        law = GaussianRounding(sigma64, 16)
        most = (law.columns / 2 + gaussian_rounding._BEYOND) / 2**64
        assert gaussian_rounding._SLACK <= law.variation <= most


COARSE = [(1.0, 1e-5, 0.1, 20, 2), (0.02, 1e-5, 1.0, 5, 1)]  # where the quick bound is too large


@pytest.mark.parametrize("given", COARSE)
def test_a_multiplier_beyond_the_quick_bound_is_verified_and_not_searched(
    folder, monkeypatch, given
):
    searches, search = [], record_accounting._search
    monkeypatch.setattr(
        record_accounting, "_search", lambda *a: (searches.append(a), search(*a))[1]
    )
    least = record_accounting.least_multiplier(*given)
    epsilon, delta, sampling, rounds, copies = given
    run = (record_accounting.RecordRounds(least, sampling, copies, rounds),)
    assert record_accounting._renyi_epsilon(run, delta) > 1.25 * epsilon
    forget()
    assert record_accounting.least_multiplier(*given) == least
    assert len(searches) == 1
    too_small = repr(record_accounting.multiplier_below(least)).encode()
    monkeypatch.setattr(record_accounting._KEPT, "find", lambda *_: too_small)
    forget()
    assert record_accounting.least_multiplier(*given) == least
    assert len(searches) == 2


@pytest.mark.parametrize("sampling", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("rounds", [1, 50])
def test_the_quick_bound_holds(folder, sampling, copies, rounds):
    run = (record_accounting.RecordRounds(3.0 * copies, sampling, copies, rounds),)
    exact = record_accounting.epsilon_of(run, 1e-5, 20.0)
    assert exact <= record_accounting._renyi_epsilon(run, 1e-5) + 1e-3


def test_old_results_make_room(folder):
    kept = Kept(__file__, most=3)
    for number in range(5):
        kept.put(b"result", number)
    assert [kept.find(number) for number in range(5)] == [None] * 2 + [b"result"] * 3
