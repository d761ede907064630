"""``jopeq.audit``: its four numbers, its verdict, and no accusation of an honest scheme."""

import math
import os
from dataclasses import replace

import numpy as np
import pytest

from jopeq import ClippedTotal, RecordSum, audit, scheme
from jopeq.analysis.empirical import empirical_epsilon
from jopeq.analysis.exact import ExactEpsilon, exact_epsilon
from jopeq.random.streams import PrivateStream

ON_THE_LINE = [  # whose ε is computed exactly
    scheme("laplace", epsilon=4.0),
    scheme("laplace+sdq", epsilon=2.0, rate=2.0),
    scheme("jopeq", epsilon=4.0, rate=2.0),
    scheme("jopeq", epsilon=1.0, rate=1.0),
    scheme("jopeq", epsilon=3.0, rate=2.0, law="t"),
    scheme("mvu", epsilon=2.0, rate=2.0),
    *(scheme("response", epsilon=2.0**rate / 4, rate=rate) for rate in (1.0, 3.0, 4.0)),
]
LATTICES = [
    *(scheme(name, epsilon=2.0, rate=2.0, lattice="A2") for name in ("t+sdq", "jopeq")),
    scheme("t", epsilon=2.0),
]
OTHERS = [*LATTICES, scheme("none"), scheme("dq", rate=2.0)]


def audited(built, private, draws=20_000):
    return audit(built, draws=draws, noise=private(built.spec))


def test_the_fields(private):
    built = scheme("jopeq", epsilon=4.0, rate=1.0)
    report = audited(built, private)
    assert report.nominal == 4.0
    assert report.proven == built.guarantee.epsilon
    assert report.exact == exact_epsilon(built)
    assert report.epsilon == report.exact.server
    assert f"{report.epsilon:.2f}" == "10.12"
    assert report.empirical == empirical_epsilon(built, draws=20_000, noise=private(built.spec))
    report = audited(scheme("jopeq", epsilon=3.0, rate=2.0, lattice="A2"), private)
    assert report.exact is None  # the proof stands
    assert report.epsilon == report.proven == report.scheme.guarantee.epsilon


@pytest.mark.parametrize("built", [*ON_THE_LINE, *OTHERS], ids=lambda built: built.spec)
def test_every_scheme_can_be_audited_and_is_what_it_says(built, private):
    report = audited(built, private, 200_000 if built in ON_THE_LINE else 60_000)
    assert report.is_consistent
    assert 0.0 < report.empirical.lower <= report.epsilon <= report.proven * (1 + 1e-6)
    assert (report.exact is None) == (built.dimension > 1)
    if built in LATTICES:
        assert report.empirical.lower > 0.3 * built.epsilon
    assert report.explanation


def test_an_attack_beyond_the_exact_value_or_the_proof_is_inconsistent(private):
    report = audited(scheme("response", epsilon=2.0, rate=3.0), private)
    better = replace(report.empirical, certain=report.epsilon + 1e-3)
    assert not replace(report, empirical=better).is_consistent
    lucky = replace(report.empirical, lower=report.epsilon + 1e-3)  # 5% of honest audits may be
    assert replace(report, empirical=lucky).is_consistent
    assert not replace(report, exact=ExactEpsilon(2.1, 2.1, 2.1)).is_consistent
    assert not replace(report, exact=ExactEpsilon(math.inf, 2.0, 2.0)).is_consistent
    nothing = audited(scheme("sdq", rate=2.0), private)  # promised, so nothing can be broken
    assert nothing.empirical.lower > 4.0
    assert nothing.is_consistent


def test_nothing_holds_in_the_regime_of_theorem_iii_3(private):
    on_the_plane = audited(scheme("jopeq", epsilon=1.0, rate=1.0, lattice="A2"), private)
    on_the_line = audited(scheme("jopeq", epsilon=4.0, rate=1.0, gamma=2.5), private)
    for report in (on_the_plane, on_the_line):
        assert report.epsilon == math.inf
        assert report.nominal is not None
        assert "no noise is added" in report.explanation
    assert on_the_line.exact.server == math.inf
    # and the attack shows it, as far as its draws go
    assert on_the_line.empirical.lower > 4.5


# Sums


class Silent(RecordSum):
    """Adds no noise, but rounds."""

    def encode(self, rows, **given):
        noise, empty = os.urandom(32), ClippedTotal(rows.dimension, self.clip)
        one, other = (
            super(Silent, self).encode(some, noise=PrivateStream.reproducible(noise), **given)
            for some in (rows, empty)
        )
        return one - other


class Still(RecordSum):
    """Adds no noise, nor does it round at random."""

    def encode(self, rows, **given):
        return 1000 * np.sign(rows.values).astype(np.int64)


class Lazy(Silent):
    """Whoever has no record adds no noise."""

    def encode(self, rows, **given):
        kind = RecordSum if rows.values.any() else Silent
        return kind.encode(self, rows, **given)


class Wide(Silent):
    """Clips at twice the clip."""

    def encode(self, rows, **given):
        return RecordSum.encode(self, rows, **given) + Silent.encode(self, rows, **given)


class Repeated(RecordSum):
    """Adds the same noise every round."""

    def encode(self, rows, **given):
        return super().encode(rows, noise=PrivateStream.reproducible(bytes(32)), **given)


@pytest.mark.parametrize("rounds", [1, 5])
@pytest.mark.parametrize("kind", [RecordSum, Silent, Still, Lazy, Wide, Repeated])
def test_sums_that_break_their_promise_are_caught(kind, rounds):
    terms = {"clients": 4, "threshold": 3, "sampling": 1.0, "rounds": rounds}
    found = audit(kind(epsilon=4.0, clip=1.0, records=1000, **terms), draws=40_000)
    assert found.is_consistent == (kind is RecordSum)
