"""The explorer without a browser: tables, answers, lines to copy, page."""

import json
import math
from importlib import resources

import numpy as np
import pytest

from jopeq.analysis.plan import plan
from jopeq.entries.spread import best_spread, normalised_error
from jopeq.models import model as models_model
from jopeq.sums import record_plan
from jopeq_lab.explorer import Refusal, Setting, answer, grid, page
from jopeq_lab.explorer.grid import AXES, DEARER, PER_ENTRY, TOLERANCE, WIDE, entry_scheme

REMEDY = "python tools/make_explorer.py grid"


@pytest.fixture(scope="module")
def kept():
    """The tables that the page has."""
    path = resources.files("jopeq_lab.explorer") / "data" / "grid.json"
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def drawn():
    """A place on some axes."""
    draws = np.random.default_rng(21)
    return lambda names: [AXES[name][draws.integers(len(AXES[name]))] for name in names]


def _place(names, values, axes=AXES):
    place = 0
    for name, value in zip(names, values, strict=True):
        place = place * len(axes[name]) + axes[name].index(value)
    return place


def test_the_tables_equal_the_library_at_places_of_every_kind(kept, drawn):
    for name, cell, count in (("sphere", grid.sphere_cell, 5), ("clients", grid.sum_cell, 8)):
        table = kept[name]
        for _ in range(count):
            values = drawn(table["by"])
            place, given = _place(table["by"], values), dict(zip(table["by"], values, strict=True))
            found = cell(**{"times" if key == "rounds" else key: given[key] for key in given})
            if isinstance(found, str):
                assert table["error"][place] == found, (REMEDY, given)
            else:
                assert table["error"][place] == pytest.approx(found[0], rel=TOLERANCE), REMEDY
                assert table["bits"][place] == found[1], (REMEDY, given)
    for name in PER_ENTRY:
        (epsilon, rate, clients), table = drawn(["epsilon", "rate", "clients"]), kept["entry"][name]
        place = _place(["epsilon", "rate"], [epsilon, rate])
        built = entry_scheme(name, epsilon, rate)
        at, spread = AXES["clients"].index(clients), best_spread(built, clients)
        assert table["error"][place][at] == pytest.approx(
            normalised_error(built, spread, clients), rel=TOLERANCE
        ), REMEDY
        lasting = normalised_error(built, spread, math.inf)
        assert table["lasting"][place][at] == pytest.approx(lasting, rel=TOLERANCE), REMEDY
        assert table["spread"][place][at] == pytest.approx(spread, abs=0.011)
        expected = built.guarantee.epsilon
        assert (table["epsilon"][place] or math.inf) == pytest.approx(expected, rel=TOLERANCE)


def test_the_table_of_multipliers_equals_the_accountant(kept):
    rng, table = np.random.default_rng(3), kept["multipliers"]
    assert table["samplings"] == list(grid.SAMPLINGS)
    for _ in range(3):
        q, e, r = (int(rng.integers(n)) for n in (8, 6, 6))
        given = table["some_epsilons"][e], table["samplings"][q], table["rounds"][r]
        assert table["ratios"][q][e][r] == pytest.approx(grid.multiplier_ratio(*given), rel=1e-4)
    assert (DEARER, WIDE) == (record_plan._DEARER, models_model._WIDE)


def test_patients_are_answered_by_the_plan():
    (row,) = plan(1.0, records=40_000, clients=10, dimension=7850, rounds=30)
    given = {"epsilon": 1.0, "rounds": 30, "entries": 7850, "patients": 40_000}
    found = answer(Setting(scheme="records", clients=10, **given))
    assert found.averaged == row.verdict.averaged
    assert found.epsilon_person == 1.0 == row.scheme.guarantee.epsilon
    assert found.delta == row.plan.delta


def test_answers_are_those_of_the_plan():
    """Against ``jopeq.plan``, and a payload that was really made."""
    job = {"dimension": 7850, "rounds": 10, "clients": 300}
    for row in plan(4.0, **job):
        found = answer(Setting(scheme=row.scheme.name, epsilon=4.0, clients=300, rounds=10))
        assert (found.error, found.averaged) == (row.error, row.error / 10)
        assert found.bits_per_entry == row.bits / 7850
        assert (found.epsilon_person, found.delta) == (row.epsilon, row.delta)
    found = answer(Setting(scheme="jopeq", epsilon=4.0, rate=1.0, clients=10, rounds=3))
    built = entry_scheme("jopeq", 4.0, 1.0)
    assert found.epsilon_entry == pytest.approx(10.119, abs=1e-3)  # not the 4 that was asked for
    assert found.epsilon_person == built.guarantee.for_client(7850, 3).epsilon
    assert found.bias == built.bias() < -0.05
    spread = best_spread(built, 10)  # three rounds of ten clients: noise of thirty, all the bias
    assert found.averaged == pytest.approx(normalised_error(built, spread, 30), rel=1e-12)
    assert found.averaged > 1.5 * found.error / 3
    assert found.bytes_a_round == len(built.encode(np.zeros(7850)))
    assert found.bytes_in_all == 30 * found.bytes_a_round
    assert found.float32_in_all == 30 * 31_400


@pytest.mark.parametrize(
    ("reason", "setting"),
    [
        ("thin", Setting(scheme="sphere", epsilon=0.5, rounds=100)),
        ("many", Setting(scheme="clients", clients=300_000)),
        (
            "tables",
            Setting(scheme="clients", clients=100_000, entries=1000, epsilon=16.0, rounds=1),
        ),
    ],
)
def test_what_the_library_refuses_is_told_with_a_remedy(reason, setting):
    with pytest.raises(Refusal) as refused:
        answer(setting)
    assert refused.value.reason == reason
    assert "{" not in str(refused.value)


def test_the_page_is_one_small_file_that_asks_for_nothing():
    text = page()
    assert len(text.encode()) < 1_500_000
    assert "{{" not in text.split("<script>")[0]
    assert "default-src 'none'" in text
    assert 'href="index.html"' not in text
    assert 'href="index.html"' in page(home="index.html")
