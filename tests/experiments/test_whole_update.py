import math

import pytest

from jopeq.experiments.whole_update import (
    WholeUpdateRow,
    clients_needed,
    draw_whole_update,
    to_markdown,
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
        coder = UpdateResponse(epsilon=row.epsilon, rate=4.0, clip=1.0)
        assert row.kept == coder.plan(row.dimension).kept
        assert row.bits == coder.bits_for(row.dimension) <= 4.0 * row.kept + 7
        assert row.order == pytest.approx(row.dimension / row.clients / row.epsilon)


def test_what_is_measured_is_what_was_computed(rows):
    for row in rows:
        # 200 updates in all; each sum of K of them has at least min(K·k, n)/3 free directions
        groups = 200 // row.clients
        free = groups * min(row.clients * row.kept, row.dimension) / 3
        assert row.measured == pytest.approx(row.predicted, rel=5 * math.sqrt(2 / free))


def test_the_table_is_always_the_same(rows):
    assert whole_update_table((20,), (2.0,), (4, 200)) == rows[:2]


def test_hopeless_is_said_plainly(rows):
    verdicts = {(row.dimension, row.epsilon, row.clients): row for row in rows}
    lost, fine = verdicts[500, 2.0, 4], verdicts[20, 64.0, 200]
    assert lost.is_hopeless
    assert lost.verdict.startswith("hopeless")
    assert str(clients_needed(500, 2.0)) in lost.verdict
    assert not fine.is_hopeless
    assert "hopeless" not in fine.verdict


def test_clients_needed_make_it_just_possible():
    needed = clients_needed(1000, 8.0, error=0.5)
    error = UpdateResponse(epsilon=8.0, rate=4.0, clip=1.0).expected_error(1000)
    assert error / needed <= 0.5 < error / (needed - 1)
    with pytest.raises(ValueError, match="error must be positive"):
        clients_needed(1000, 8.0, error=0.0)


def test_the_table_in_words(rows):
    lines = to_markdown(rows).splitlines()
    assert len(lines) == 2 + len(rows)
    assert len({line.count("|") for line in lines}) == 1


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
