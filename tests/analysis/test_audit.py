"""``jopeq.audit``: its four numbers and its verdict."""

import math
from dataclasses import replace

import pytest

from jopeq import audit, scheme
from jopeq.analysis.empirical import empirical_epsilon
from jopeq.analysis.exact import ExactEpsilon, exact_epsilon

DRAWS = 20_000


@pytest.fixture(scope="module")
def audited(private):
    """Audits by name, each run once."""
    known = {}

    def run(name, **parameters):
        built = scheme(name, **parameters)
        if built not in known:
            known[built] = audit(built, draws=DRAWS, noise=private(built.spec))
        return known[built]

    return run


def test_the_fields(audited, private):
    report = audited("jopeq", epsilon=4.0, rate=1.0)
    built = scheme("jopeq", epsilon=4.0, rate=1.0)
    assert report.nominal == 4.0
    assert report.proven == built.guarantee.epsilon
    assert report.exact == exact_epsilon(built)
    assert report.epsilon == report.exact.server
    assert f"{report.epsilon:.2f}" == "10.12"
    assert report.empirical == empirical_epsilon(built, draws=DRAWS, noise=private(built.spec))
    report = audited("jopeq", epsilon=3.0, rate=2.0, lattice="A2")
    assert report.exact is None  # the proof stands
    assert report.epsilon == report.proven == report.scheme.guarantee.epsilon


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("none", {}),
        ("sdq", {"rate": 2.0}),
        ("dq", {"rate": 2.0}),
        ("laplace", {"epsilon": 2.0}),
        ("t", {"epsilon": 2.0}),
        ("l2", {"epsilon": 2.0}),
        ("gaussian", {"epsilon": 2.0}),
        ("laplace+sdq", {"epsilon": 2.0, "rate": 2.0}),
        ("t+sdq", {"epsilon": 2.0, "rate": 2.0, "lattice": "A2"}),
        ("l2+sdq", {"epsilon": 2.0, "rate": 2.0, "lattice": "A2"}),
        ("gaussian+sdq", {"epsilon": 2.0, "rate": 2.0}),
        ("jopeq", {"epsilon": 2.0, "rate": 1.0}),
        ("jopeq", {"epsilon": 2.0, "rate": 2.0, "lattice": "A2"}),
        ("jopeq", {"epsilon": 2.0, "rate": 2.0, "law": "gaussian"}),
        ("mvu", {"epsilon": 2.0, "rate": 2.0}),
        ("staircase", {"epsilon": 2.0}),
        ("staircase", {"epsilon": 2.0, "lattice": "A2"}),
        ("response", {"epsilon": 2.0, "rate": 3.0}),
    ],
)
def test_every_scheme_can_be_audited_and_is_what_it_says(name, parameters, audited):
    report = audited(name, **parameters)
    assert report.is_consistent
    assert report.empirical.lower <= report.epsilon <= report.proven * (1 + 1e-6)
    assert report.explanation


# The verdict


def test_an_attack_beyond_the_exact_value_or_the_proof_is_inconsistent(audited):
    report = audited("response", epsilon=2.0, rate=3.0)
    better = replace(report.empirical, certain=report.epsilon + 1e-3)
    assert not replace(report, empirical=better).is_consistent
    lucky = replace(report.empirical, lower=report.epsilon + 1e-3)  # 5% of honest audits may be
    assert replace(report, empirical=lucky).is_consistent
    assert not replace(report, exact=ExactEpsilon(2.1, 2.1, 2.1)).is_consistent
    assert not replace(report, exact=ExactEpsilon(math.inf, 2.0, 2.0)).is_consistent
    nothing = audited("sdq", rate=2.0)  # promised, so nothing can be broken
    assert nothing.empirical.lower > 4.0
    assert nothing.is_consistent


def test_nothing_holds_in_the_regime_of_theorem_iii_3(audited):
    on_the_plane = audited("jopeq", epsilon=1.0, rate=1.0, lattice="A2")
    on_the_line = audited("jopeq", epsilon=4.0, rate=1.0, gamma=2.5)
    for report in (on_the_plane, on_the_line):
        assert report.epsilon == math.inf
        assert report.nominal is not None
        assert "no noise is added" in report.explanation
    assert on_the_line.exact.server == math.inf
    # and the attack shows it, as far as its draws go
    assert on_the_line.empirical.lower > 4.5
