"""A recipe and its step: made once, whatever the scheme."""

from __future__ import annotations

import pytest

pytest.importorskip("numba")

from jopeq.kernels.cpu.steps import prepared


def test_a_recipe_is_prepared_once(chunked):
    assert prepared(chunked.recipe) is prepared(chunked.recipe)
    assert chunked.recipe is chunked.recipe
