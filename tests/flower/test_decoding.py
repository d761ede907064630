import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, RecordDict

import jopeq
from jopeq.flower import decoding
from jopeq.flower.decoding import DecodedReplies, decoded_floats
from jopeq.flower.payload import Model
from jopeq.wire.payload import Header, seal

EXACT = jopeq.scheme("none")


def model(**arrays):
    record = ArrayRecord({name: Array(np.asarray(value)) for name, value in arrays.items()})
    return Model(RecordDict({"arrays": record}))


def payload(**arrays):
    return jopeq.encode_state(EXACT, arrays)


def test_update_is_added_in_the_models_type():
    server = model(w=np.ones(2, np.float16), v=np.ones(2), n=np.array(3))
    found, norm = decoded_floats(EXACT, payload(w=np.ones(2), v=np.ones(2)), server)
    assert norm == 2.0
    assert {name: (value.dtype.name, value.tolist()) for name, value in found.items()} == {
        "w": ("float16", [2.0, 2.0]),
        "v": ("float64", [2.0, 2.0]),
    }


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.ones(2)}, "tensor 'x'"),
        ({"n": np.ones(())}, "tensor 'n'"),  # integers are not the client's to move
        ({"w": np.ones(3)}, "shape"),
        ({"w": np.full(2, 1e30)}, "too large for float16"),
        (None, "twice"),
    ],
)
def test_bad_payloads(arrays, message):
    server = model(w=np.ones(2, np.float16), v=np.ones(2), n=np.array(3))
    header = Header(EXACT.spec, ("w", "w"), ((2,), (2,)))
    twice = seal(header.to_bytes(), [np.ones(4, "<f4").tobytes()], None)
    with pytest.raises(jopeq.PayloadError, match=message):
        decoded_floats(EXACT, twice if arrays is None else payload(**arrays), server)


def test_entries_that_are_infinite_in_the_model_hide_nothing():
    """A mask of −inf: the norm is the update's own, and other entries may not overflow."""
    server = model(w=np.array([-np.inf, 0.0], np.float16))
    found, norm = decoded_floats(EXACT, payload(w=np.array([1e30, 3.0])), server)
    assert found["w"].tolist() == [-np.inf, 3.0]
    assert norm == pytest.approx(1e30)
    with pytest.raises(jopeq.PayloadError, match="too large for float16"):
        decoded_floats(EXACT, payload(w=np.array([0.0, 1e30])), server)


def test_arrays_look_like_flowers():
    (array,) = DecodedReplies(EXACT).add(payload(w=np.ones(2)), model(w=np.ones(2))).values()
    copied = ArrayRecord({"w": array})["w"]  # Flower's constructor copies by ``data``
    assert copied.numpy().tolist() == array.numpy().tolist() == [2.0, 2.0]
    assert (array.dtype, array.shape) == ("float64", (2,))
    array.numpy()[:] = 9  # a strategy may change the values it reads
    assert array.numpy().tolist() == [2.0, 2.0]


@pytest.fixture
def decodings(monkeypatch):
    """One entry for every payload that is decoded."""
    made = []

    def counted(*arguments):
        made.append(arguments)
        return decoded_floats(*arguments)

    monkeypatch.setattr(decoding, "decoded_floats", counted)
    return made


@pytest.mark.parametrize("keep", [{"keep_bytes": 0}, {}])
def test_one_by_one_holds_one_and_decodes_each_twice(decodings, keep):
    """To check, and to read; a small round is kept, and decoded once."""
    server = model(w=np.ones(2), v=np.ones(2))
    replies = DecodedReplies(EXACT, **keep)
    clients = [replies.add(payload(w=np.full(2, float(i)), v=np.ones(2)), server) for i in range(5)]
    read = [[client[name].numpy()[0] for name in ("w", "v")] for client in clients]
    assert read == [[1.0 + i, 2.0] for i in range(5)]
    assert replies.norms == pytest.approx([np.hypot(i, 1.0) * 2**0.5 for i in range(5)])
    assert len(decodings) == (10 if keep else 5)
    assert not (keep and replies._kept)


def test_a_strategy_that_comes_back_finds_all_kept(decodings):
    names = [f"w{i}" for i in range(10)]
    server = model(**{name: np.ones(2) for name in names})
    replies = DecodedReplies(EXACT, keep_bytes=0)
    arrays = payload(**{name: np.ones(2) for name in names})
    clients = [replies.add(arrays, server) for _ in range(4)]
    for name in names:
        for client in clients:
            client[name].numpy()
    assert len(decodings) <= 3 * 4
