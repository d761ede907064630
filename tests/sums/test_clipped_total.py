"""Exact totals: each row's integers depend on that row alone, on every path."""

import pickle
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jopeq import kernels
from jopeq.errors import UpdateError
from jopeq.sums.clipped_total import MOST_ROWS, UNITS, ClippedTotal, add_up, to_integers
from jopeq.wire.entries import READ_CHUNK, lane_sum

MODES = ("off", "on")
TORCH_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@pytest.fixture(params=MODES)
def mode(request):
    kernels.use(request.param)
    yield request.param
    kernels.use(None)


def factor_of(row, clip, add_up=lane_sum):
    """The factor by which a row of float64 is multiplied, 0 for a bad row."""
    energy = 0.0
    for start in range(0, len(row), READ_CHUNK):
        chunk = row[start : start + READ_CHUNK]
        energy += add_up(chunk * chunk)
    return UNITS * (1 - 2**-20) / max(np.sqrt(energy), clip) if np.isfinite(energy) else 0.0


def by_the_book(row, clip):
    """One row, one entry at a time, straight from the definition."""
    wide = row.astype(np.float64)
    factor = factor_of(wide, clip)
    integers = [int(factor * x) for x in wide.tolist()] if factor else [0] * len(row)
    return np.array(integers) if sum(n * n for n in integers) <= 2**62 else np.zeros_like(row)


def row_on_edges(dimension):
    """A row whose integers change with the last bit of its factor: f·x is barely an integer."""
    row = np.random.default_rng(dimension).standard_normal(dimension)
    row[-1] = 1.0
    factor = factor_of(row, 0.1)
    places = np.rint(factor * row[:-1])
    found = places / factor
    for _ in range(4):
        is_short = np.abs(factor * found) < np.abs(places)
        found[is_short] = np.nextafter(found[is_short], np.inf * places[is_short])
    found[::2] = np.nextafter(found[::2], 0)  # a larger factor shows in these
    low, high = 0.0, 2.0  # of the last entry, which makes up for the changed norm
    while factor_of(np.append(found, (low + high) / 2), 0.1) != factor:
        middle = (low + high) / 2
        is_above = factor_of(np.append(found, middle), 0.1) < factor
        low, high = (low, middle) if is_above else (middle, high)
    return np.append(found, (low + high) / 2)


@st.composite
def row_sets(draw):
    count, dimension = draw(st.integers(0, 12)), draw(st.sampled_from([1, 2, 7, 511, 513, 1500]))
    kind = draw(st.sampled_from([np.float16, np.float32, np.float64, np.longdouble, ">f4"]))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    spread = 10.0 ** draw(st.sampled_from([-40, -3, 0, 2, 30, 160]))
    rows = generator.standard_normal((count, dimension)) * spread
    with np.errstate(all="ignore"):
        rows = rows.astype(kind)
    for _ in range(draw(st.integers(0, 3)) if count else 0):
        bad = draw(st.sampled_from([np.nan, np.inf, -np.inf, 5e-324, 0.0]))
        rows[draw(st.integers(0, count - 1)), draw(st.integers(0, dimension - 1))] = bad
    layout = draw(st.sampled_from(["plain", "columns", "every second", "transposed"]))
    if layout == "every second":
        rows = np.repeat(rows, 2, axis=0)[::2]
    elif layout == "columns":
        rows = np.hstack([rows, rows])[:, :dimension]
    elif layout == "transposed":
        rows = rows.T.copy().T
    return rows


@given(rows=row_sets(), clip=st.sampled_from([1e-20, 0.3, 1, 1e20]), cut=st.integers(0, 12))
@settings(max_examples=60, deadline=None)
def test_a_total_is_the_sum_of_integers_that_each_row_has_alone(rows, clip, cut):
    alone = np.array([by_the_book(row, clip) for row in rows], np.int64).reshape(rows.shape)
    assert (to_integers(rows, clip) == alone).all()
    for mode in MODES:
        kernels.use(mode)
        try:
            total = ClippedTotal(rows.shape[1], clip)
            total.add(rows[cut:][::-1]).add(rows[:cut])  # another order, other chunks
        finally:
            kernels.use(None)
        assert (total.values == alone.sum(axis=0)).all()
        assert total.rows == len(rows)


@pytest.mark.parametrize("dimension", [5210, READ_CHUNK + 700])
def test_every_path_adds_up_a_norm_in_the_same_order(dimension):
    row = row_on_edges(dimension)
    exact = by_the_book(row, 0.1)
    other = factor_of(row, 0.1, add_up=lambda squares: float(np.cumsum(squares)[-1]))
    assert (exact != (other * row).astype(np.int64)).mean() > 0.1  # another order shows
    rows = np.vstack([row] * 3)
    totals = [to_integers(rows, 0.1).sum(0)]
    for mode in MODES:
        kernels.use(mode)
        totals.append(ClippedTotal(dimension, 0.1).add(rows).values)
    kernels.use(None)
    there = torch.zeros(dimension, dtype=torch.int64)
    add_up(torch.from_numpy(rows), 0.1, there, torch)
    for total in (*totals, there.numpy()):
        assert (total == 3 * exact).all()


@pytest.mark.parametrize("dtype", TORCH_TYPES)
def test_tensors_have_the_integers_of_their_float64(mode, dtype):
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(9, 3000, generator=generator).to(dtype).requires_grad_()
    exact = to_integers(rows.detach().double().numpy(), 0.5)
    assert (ClippedTotal(3000, 0.5).add(rows).values == exact.sum(0)).all()
    assert (to_integers(rows, 0.5) == exact).all()
    there = torch.zeros(3000, dtype=torch.int64)  # by torch's own operations, as on a GPU
    add_up(rows.detach(), 0.5, there, torch)
    assert (there.numpy() == exact.sum(0)).all()


def test_long_rows_and_many_of_them(mode):
    generator = np.random.default_rng(2)
    long = generator.standard_normal((3, READ_CHUNK + 700))
    assert (to_integers(long, 1.0)[1] == by_the_book(long[1], 1.0)).all()
    many = generator.standard_normal((4000, 150), dtype=np.float32)  # several blocks and threads
    for rows in (long, many):
        total = ClippedTotal(rows.shape[1], 1.0).add(rows)
        assert (total.values == to_integers(rows, 1.0).sum(axis=0)).all()


@pytest.mark.parametrize("row", [[np.nan, 1.0], [np.inf, 0.0], [1e200, 1e200], [-np.inf, np.nan]])
def test_a_bad_row_counts_as_zeros_and_nothing_shows_it(mode, row, recwarn):
    fine, bad = np.array([[0.1, -0.2]]), np.array([row])
    total = ClippedTotal(2, 1.0).add(np.vstack([fine, bad]))
    assert (total.values == to_integers(fine, 1.0)[0]).all()
    assert total.rows == 2
    assert not recwarn.list


def test_no_row_is_longer_than_the_clip_and_short_rows_keep_their_length():
    generator = np.random.default_rng(3)
    rows = generator.standard_normal((200, 400)) * np.logspace(-6, 6, 200)[:, None]
    integers = to_integers(rows, 1.0)
    energies = (integers.astype(object) ** 2).sum(axis=1)
    assert max(energies) <= UNITS**2
    wanted = rows / np.maximum(np.linalg.norm(rows, axis=1), 1.0)[:, None]
    assert np.abs(integers / UNITS - wanted).max() < 2**-20


def test_groups_are_clipped_as_one(mode):
    generator = np.random.default_rng(4)
    rows = generator.standard_normal((50, 600), dtype=np.float32)
    rows[7] = np.nan
    group = generator.integers(-3, 8, 50)
    sums = []
    for one in np.unique(group):
        mine = np.zeros(600)
        for row in rows[group == one]:
            mine += row
        sums.append(mine)
    exact = to_integers(np.array(sums), 0.7)
    for ids in (group, group.tolist(), torch.tensor(group)):
        total = ClippedTotal(600, 0.7).add(rows, group=ids)
        assert (total.values == exact.sum(axis=0)).all()
        assert total.rows == len(sums)
    order = np.argsort(group, kind="stable")  # contiguous or not, the groups are the same
    assert (ClippedTotal(600, 0.7).add(rows[order], group[order]).values == total.values).all()
    with pytest.raises(ValueError, match="group"):
        total.add(rows[:1], group[:1])


def test_totals_travel():
    rows = np.random.default_rng(5).standard_normal((6, 30))
    parts = ClippedTotal(30, 2.0).add(rows[:2]).add(rows[2:])
    whole = pickle.loads(pickle.dumps(ClippedTotal(30, 2.0).add(rows)))
    assert (parts.values == whole.values).all()
    assert parts.rows == whole.rows == 6
    assert (whole.to_numpy() == whole.values * (2.0 / UNITS)).all()
    assert not whole.values.flags.writeable


def test_the_total_of_as_many_rows_as_are_allowed_fits():
    assert MOST_ROWS * UNITS < 2**63
    total = ClippedTotal(1, 1.0)
    total._rows = MOST_ROWS
    with pytest.raises(ValueError, match="rows"):
        total.add(np.zeros((1, 1)))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_memory_is_bounded(mode, dtype):
    rows = np.ones((8192, 2048), dtype)
    ClippedTotal(2048, 1.0).add(rows[:1])
    tracemalloc.start()
    ClippedTotal(2048, 1.0).add(rows).add(rows, group=np.arange(8192) % 5000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20


ROWS = (np.zeros(3), np.zeros((2, 4)), np.zeros((2, 3), int), torch.zeros(2, 3, dtype=int))
BAD = {
    "clip": (lambda clip: ClippedTotal(3, clip), (0, -1.0, np.nan, np.inf, True, "1", None, 1e-40)),
    "dimension": (lambda dimension: ClippedTotal(dimension, 1.0), (0, -2, 1.5, True)),
    "rows": (lambda rows: ClippedTotal(3, 1.0).add(rows), ROWS),
    "group": (
        lambda group: ClippedTotal(3, 1.0).add(np.zeros((2, 3)), group=group),
        ([1], [0.5, 1.5], [[0, 1]], ["a", "b"]),
    ),
}


@pytest.mark.parametrize(("name", "bad"), [(name, bad) for name in BAD for bad in BAD[name][1]])
def test_bad_input_is_refused_by_its_name(name, bad):
    with pytest.raises(UpdateError if name == "rows" else ValueError, match=name):
        BAD[name][0](bad)


@pytest.mark.parametrize("shape", [(0, 3, 4, 3), (1, 1, 1, 0), (37, 10, 521, 10), (5, 2, 9000, 0)])
def test_products_are_the_rows_of_a_linear_layer(shape):
    count, classes, width, more = shape
    rng = np.random.default_rng(7)
    sizes = (classes, width, more)
    parts = [rng.standard_normal((count, size)).astype(np.float32) for size in sizes]
    if count > 9:
        parts[0][1, 0], parts[1][2, -1], parts[0][3], parts[2][4, 0] = np.nan, np.inf, 0.0, 1e30
        parts[0][5] *= 1e-30  # denormal products
    rows = np.einsum("ic,iw->icw", *parts[:2]).reshape(count, classes * width)
    rows = np.concatenate((rows, parts[2]), axis=1)
    exact = ClippedTotal(rows.shape[1], 0.3)
    kernels.use("off")
    exact.add(rows)
    kernels.use("on")
    kernels.load()
    try:
        found = ClippedTotal(rows.shape[1], 0.3).add_products(parts[0], parts[1][:, :], parts[2])
    finally:
        kernels.use(None)
    assert (found.values == exact.values).all()
    assert found.rows == count


@pytest.mark.parametrize(
    ("shapes", "kind"),
    [(((3, 2), (3, 4), (3, 3)), "f4"), (((3, 2), (2, 4), (3, 2)), "f4"),
     (((3,), (3, 4), (3, 2)), "f4"), (((3, 2), (3, 4), (3, 2)), "f8")],
)  # fmt: skip
def test_products_that_are_no_rows_of_this_total_are_refused(shapes, kind):
    total = ClippedTotal(10, 1.0)
    with pytest.raises(UpdateError, match="slopes"):
        total.add_products(*(np.ones(shape, dtype=kind) for shape in shapes))
    assert total.rows == 0
