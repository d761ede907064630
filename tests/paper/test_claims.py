"""Every sentence holds of the kept results, and each can fail."""

from contextlib import suppress
from dataclasses import fields, replace

import pandas as pd
import pytest

from paper import claims
from paper.words import ClaimError

TELLING = ("seed", "snr", "test_accuracy", "validation", "nominal", "hits", "final", "mean_mse")
OTHER = '["staircase",{"coding":"entropy","clip":0.1}]'


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
    assert list(claims.SECTIONS) == sorted(results.sections, key=list(claims.SECTIONS).index)


@pytest.mark.parametrize("section", claims.SECTIONS)
def test_every_claim_can_fail(results, section):
    """Another content of some column of the section makes it false."""
    of, frame = claims.SECTIONS[section], getattr(results, section)
    never = {sentence for sentence, _ in of(results)}
    for name in sorted(frame, key=lambda name: name not in TELLING):
        for values in spoilt(frame[name].dropna()) if never else ():
            with suppress(ArithmeticError, LookupError, TypeError, ValueError):  # make no table
                other = replace(results, **{section: frame.assign(**{name: values})})
                never.difference_update(sentence for sentence, holds in of(other) if not holds)
    assert never == set()


def test_a_claim_that_fails_stops_the_page_and_is_named(results):
    other = replace(results, table1=results.table1.assign(snr=9.0))
    with pytest.raises(ClaimError) as error:
        claims.check(other)
    failed = claims.failed(other)
    assert failed
    assert all(sentence in str(error.value) for sentence in failed)


def test_claims_about_sections_that_are_not_there_are_not_asked(results):
    empty = {field.name: pd.DataFrame() for field in fields(results) if field.name != "pictures"}
    assert claims.failed(replace(results, **empty)) == []
