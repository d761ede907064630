"""Reading updates: every float array and tensor there is, in chunks, and clear refusals."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from jopeq.errors import UpdateError
from jopeq.wire.entries import MAX_AXES, READ_CHUNK, Entries, as_float_array, is_left_out

torch = pytest.importorskip("torch")


def flat(entries):
    return np.concatenate([c for i in range(len(entries.tensors)) for c in entries.chunks(i)])


class OwnTensor(torch.Tensor):
    """Neither its name nor its module says that it is a tensor."""


SIX = torch.arange(6.0)
FLOATS = [
    *(np.arange(6).astype(kind) for kind in ("f2", "f4", "f8", np.longdouble, ">f4")),
    *(SIX.tolist(), np.frombuffer(np.arange(6.0).tobytes())),  # read-only
    *(SIX.to(kind) for kind in (torch.float16, torch.bfloat16, torch.float32, torch.float64)),
    *(SIX.to(torch.float8_e4m3fn), SIX.clone().requires_grad_(), torch.nn.Parameter(SIX)),
    2 * torch.arange(0, 3, 0.5, requires_grad=True),  # the result of a graph
    SIX.clone().requires_grad_().as_subclass(OwnTensor),
]


@pytest.mark.parametrize("update", FLOATS, ids=lambda update: str(getattr(update, "dtype", "")))
def test_floats_of_every_kind_are_read(update):
    entries = Entries.of(update)
    assert entries.count == 6
    chunk = flat(entries)
    assert chunk.dtype == np.float64
    assert chunk.tolist() == SIX.tolist()
    chunk[:] = -1  # the update is never changed
    (_, piece), *_ = entries.read(0, 6)
    piece[:] = -1
    assert flat(entries).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


GRID = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
TENSOR = torch.from_numpy(GRID)
LAYOUTS = [GRID[::-1, ::-1, ::-1], GRID[:, ::2, 1::2], np.broadcast_to(GRID[0, 0], (3, 4))]
LAYOUTS += [TENSOR.permute(2, 0, 1), TENSOR[:, ::2], TENSOR[:1].expand(5, 3, 4)]


@pytest.mark.parametrize("array", LAYOUTS, ids=lambda array: str(tuple(array.shape)))
def test_memory_layout_does_not_matter(array):
    entries = Entries.of({"a": array, "b": np.zeros((0, 4)), "c": np.float32(3.0)})
    assert entries.names == ("a", "b", "c")
    assert entries.shapes == (tuple(array.shape), (0, 4), ())
    expected = np.append(np.asarray(array).reshape(-1), 3.0)
    np.testing.assert_array_equal(flat(entries), expected)
    pieces = [piece for _, piece in entries.read(2, entries.count)]
    np.testing.assert_array_equal(np.concatenate(pieces), expected[2:])


@given(
    array=arrays.arrays(
        dtype=st.sampled_from([np.float16, np.float32, np.float64]),
        shape=arrays.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=5),
        elements=st.integers(-100, 100),
    ),
    data=st.data(),
)
def test_any_shape_reads_in_row_major_order(array, data):
    axes = data.draw(st.permutations(range(array.ndim)))
    view = array.transpose(axes)
    entries = Entries.of(view)
    start = data.draw(st.integers(0, array.size))
    stop = data.draw(st.integers(start, array.size))
    pieces = [piece for _, piece in entries.read(start, stop)]
    read = np.concatenate(pieces) if pieces else np.empty(0)
    np.testing.assert_array_equal(read, view.reshape(-1)[start:stop])


def test_integers_and_booleans_of_a_state_are_left_out():
    left_out = {"tracked": torch.tensor(7), "mask": np.array([True]), "steps": np.uint8(3)}
    assert Entries.of({"weight": torch.ones(2), **left_out}).names == ("weight",)
    for name in (1, None, "\ud800", b"weight"):
        with pytest.raises(UpdateError, match=r"the name of a tensor must be text, got .*: rename"):
            Entries.of({name: np.ones(2)})


OTHERS = {
    "complex128": np.ones(2, complex),
    "torch.complex64": torch.ones(2, dtype=torch.complex64),
    "object": np.array([1.0, None]),
    "<U3": "1.0",
    "datetime64": np.array(["2020-01-01"], "datetime64[D]"),
}
WHOLE = {"int64": np.arange(3), "bool": np.array([True]), "torch.int64": torch.arange(3)}


@pytest.mark.parametrize("dtype", [*OTHERS, *WHOLE])
def test_other_dtypes_are_refused_with_the_remedy(dtype):
    value = (OTHERS | WHOLE)[dtype]
    message = rf"the update has dtype {dtype}.*astype\('float32'\).*\.float\(\)"
    with pytest.raises(UpdateError, match=message):
        Entries.of(value)
    assert is_left_out(value) == (dtype in WHOLE)
    if dtype in OTHERS:
        with pytest.raises(UpdateError, match=r"tensor 'odd' has dtype .* leave it out"):
            Entries.of({"fine": np.ones(2), "odd": value})


def test_more_axes_than_a_payload_can_name_are_refused():
    as_float_array(np.zeros((1,) * MAX_AXES), "")
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":  # before, NumPy stopped there itself
        with pytest.raises(UpdateError, match="33 axes, at most 32 can be encoded: reshape"):
            as_float_array(np.zeros((1,) * (MAX_AXES + 1)), "")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_nan_and_inf_are_refused_by_name_and_position(bad, dtype):
    array = np.zeros((4, 5), dtype)
    array[2, 3] = bad
    with pytest.raises(UpdateError, match=rf"the update holds {bad} at position \(2, 3\)"):
        Entries.of(array).screen(None)
    with pytest.raises(UpdateError, match=rf"tensor 'w' holds {bad} at position \(3, 2\)"):
        Entries.of({"v": np.ones(3), "w": array.T}).screen(None)
    with pytest.raises(UpdateError, match=r"nothing was sent"):
        Entries.of(torch.from_numpy(array)).screen(None)


LARGEST = float(np.finfo(np.float32).max)
DEEP = np.zeros((3, READ_CHUNK // 2), np.float32)
DEEP[2, 17] = np.nan


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (np.array(["0", "1e4000"], np.longdouble), r"holds inf at position \(1,\)"),
        (np.array([0x7FA00000], np.uint32).view(np.float32), r"holds nan at position \(0,\)"),
        (DEEP, r"at position \(2, 17\)"),
        (np.float32(np.nan), r"at position \(\)"),
        (np.array([0.0, 1e39]), r"holds 1e\+39 at position \(1,\): .* within float32"),
        (np.array([np.nextafter(LARGEST, np.inf)]), "within float32"),
    ],
    ids=["long double", "signalling", "beyond the first chunk", "no axes", "1e39", "next"],
)
def test_other_entries_that_float32_cannot_hold_are_refused(update, message):
    Entries.of(np.array([LARGEST, -LARGEST])).screen(None)
    with np.errstate(all="ignore"), pytest.raises(UpdateError, match=message):
        Entries.of(update).screen(None)


@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
def test_reading_copies_a_chunk_and_never_the_whole(layout):
    array = np.zeros((1000, 2000), np.float32)
    entries = Entries.of(array.T if layout == "transposed" else array)
    tracemalloc.start()
    entries.screen(None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 * READ_CHUNK < 2 * array.nbytes
