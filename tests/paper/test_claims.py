"""Every sentence holds of the kept results, and each can fail."""

from dataclasses import fields, replace

import pandas as pd
import pytest

from paper import claims

OTHER = '["staircase",{"coding":"entropy","clip":0.1}]'
TELLING = ("seed", "snr", "test_accuracy", "validation", "nominal", "hits", "final", "mean_mse")


def spoilt(column):
    """What a column of numbers, curves or schemes could hold instead."""
    first = column.iloc[0] if len(column) else {}
    if isinstance(first, dict):
        return []
    if isinstance(first, list):
        return [column.map(lambda values, one=one: [one] * len(values)) for one in (0.0, 0.5, 1.0)]
    if isinstance(first, str):
        return [column.where(~column.str.startswith("["), OTHER)]
    if column.isin([True, False]).all():
        return [~column.astype(bool)]
    return [0 * column, 0 * column + 10**9, -column, 0.4 * column, column.iloc[::-1].values]


def test_every_claim_holds(results):
    assert claims.failed(results) == []


def can_fail(one, results):
    """Whether another content of some column of some section makes the claim false."""
    for section in one.sections or results.sections:
        frame = getattr(results, section)
        names = sorted(frame, key=lambda name: name not in TELLING)
        for name, values in ((n, v) for n in names for v in spoilt(frame[n].dropna())):
            try:
                if not one.holds(replace(results, **{section: frame.assign(**{name: values})})):
                    return True
            except (ArithmeticError, LookupError, TypeError, ValueError):
                pass  # numbers that make no table
    return False


@pytest.mark.parametrize("one", claims.CLAIMS, ids=lambda one: one.name)
def test_a_claim_can_fail(results, one):
    assert can_fail(one, results)


def test_a_claim_that_fails_stops_the_page_and_is_named(results):
    frame = results.table1.assign(snr=9.0)
    with pytest.raises(claims.ClaimError) as error:
        claims.check(replace(results, table1=frame))
    failed = claims.failed(replace(results, table1=frame))
    assert failed
    assert all(one.statement in str(error.value) for one in failed)


def test_claims_about_sections_that_are_not_there_are_not_asked(results):
    empty = {field.name: pd.DataFrame() for field in fields(results) if field.name != "pictures"}
    assert claims.failed(replace(results, **empty)) == []
