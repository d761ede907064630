import math

import pytest

from jopeq.experiments.whole_update import (
    WholeUpdateRow,
    draw_whole_update,
    whole_update_table,
)
from jopeq.schemes.update_response import UpdateResponse


@pytest.fixture(scope="module")
def rows():
    return whole_update_table((20, 500), (2.0, 64.0), (4, 200))


def test_every_combination_has_its_row(rows):
    found = [(row.dimension, row.epsilon, row.clients) for row in rows]
    assert found == [(d, e, c) for d in (20, 500) for e in (2.0, 64.0) for c in (4, 200)]
    for row in rows:
        assert row.order == pytest.approx(row.dimension / row.clients / row.epsilon)


def test_what_is_measured_is_what_was_computed(rows):
    for row in rows:
        # 200 updates in all; each sum of K of them has at least min(K·k, n)/3 free directions
        groups = 200 // row.clients
        coder = UpdateResponse(epsilon=row.epsilon, rate=4.0, clip=1.0)
        kept = coder.plan(row.dimension).kept
        free = groups * min(row.clients * kept, row.dimension) / 3
        assert row.measured == pytest.approx(row.predicted, rel=5 * math.sqrt(2 / free))


def test_the_table_is_always_the_same(rows):
    assert whole_update_table((20,), (2.0,), (4, 200)) == rows[:2]


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_figures_are_saved(rows, tmp_path, suffix):
    pytest.importorskip("matplotlib")
    path = draw_whole_update(rows, tmp_path / f"error{suffix}")
    start = path.read_bytes()[:200]
    assert start.startswith(b"\x89PNG") if suffix == ".png" else b"<?xml" in start


def test_figures_need_rows_and_a_known_suffix(rows, tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(ValueError, match=r"\.png or \.svg"):
        draw_whole_update(rows, tmp_path / "error.gif")
    with pytest.raises(ValueError, match="empty"):
        draw_whole_update([], tmp_path / "error.png")


def test_rows_are_plain_values(rows):
    assert isinstance(rows[0], WholeUpdateRow)
    assert hash(rows[0]) != hash(rows[1])
