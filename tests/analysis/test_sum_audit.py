"""Audits and plans of secure sums."""

from dataclasses import replace

import pytest

import jopeq
from jopeq.analysis import sum_audit as secure_sum
from jopeq.analysis.sum_audit import audit_sum
from jopeq.random.streams import PrivateStream

GIVEN = {"epsilon": 4.0, "delta": 1e-5, "clip": 1.0}


def noise():
    return PrivateStream.reproducible(bytes(32))


@pytest.mark.parametrize(
    "given",
    [
        {"clients": 4, "threshold": 3},
        {"clients": 30, "threshold": 25, "colluding": 5, "participations": 8},
        {"clients": 6, "threshold": 6, "neighbours": "replaced"},
    ],
    ids=str,
)
def test_shown_below_exact_below_proven(given):
    report = jopeq.audit(jopeq.SecureSum(**GIVEN, **given), draws=20_000, noise=noise())
    assert 0.1 < report.empirical.lower < report.exact <= report.proven <= 4.0
    assert report.exact > 3.7
    assert report.is_consistent


def test_too_little_noise_is_found_out(monkeypatch):
    """The attack and the exact law see the noise that is drawn, not what the plan says of it."""
    plan = jopeq.SecureSum(**GIVEN, clients=4, threshold=4).plan(1000)
    thin = replace(plan, sigma64=plan.sigma64 // 4)
    monkeypatch.setattr(jopeq.SecureSum, "plan", lambda *_: thin)
    report = audit_sum(jopeq.SecureSum(**GIVEN, clients=4, threshold=4), draws=20_000)
    assert report.empirical.certain > report.proven
    assert not report.is_consistent


def test_shares_that_repeat_are_found_out(monkeypatch):
    monkeypatch.setattr("jopeq.sums.secure_sum.private_stream", lambda _: noise())
    report = audit_sum(jopeq.SecureSum(**GIVEN, clients=4, threshold=4), draws=2000)
    assert report.empirical.event == "two shares of one update are the same"
    assert not report.is_consistent


def test_large_cohorts_have_the_proof_alone(monkeypatch):
    monkeypatch.setattr(secure_sum, "_MOST_DRAWS", 4_000_000)
    scheme = jopeq.SecureSum(**GIVEN, clients=600, threshold=600)
    report = audit_sum(scheme, dimension=5000, draws=2000, noise=noise())
    assert report.exact is None
    assert report.is_consistent


@pytest.mark.parametrize(("name", "value"), [("draws", 10), ("confidence", 0.2)])
def test_bad_settings_are_refused(name, value):
    with pytest.raises(ValueError, match=name):
        audit_sum(jopeq.SecureSum(**GIVEN, clients=4, threshold=4), **{name: value})
