import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, RecordDict

import jopeq
from jopeq.flower import decoding
from jopeq.flower.decoding import DecodedReplies, decoded_floats, opened_update
from jopeq.flower.payload import Model
from jopeq.wire.payload import Header, seal

EXACT = jopeq.scheme("none")


def model(**arrays):
    record = ArrayRecord({name: Array(np.asarray(value)) for name, value in arrays.items()})
    return Model(RecordDict({"arrays": record}))


def payload(**arrays):
    return EXACT.encode(arrays)


def decoded(payload, server):
    return decoded_floats(opened_update(EXACT, payload, server), server)


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
        decoded(twice if arrays is None else payload(**arrays), server)


def test_entries_that_are_infinite_in_the_model_hide_nothing():
    """A mask of −inf: the norm is the update's own, and other entries may not overflow."""
    server = model(w=np.array([-np.inf, 0.0], np.float16))
    found, norm = decoded(payload(w=np.array([1e30, 3.0])), server)
    assert found["w"].tolist() == [-np.inf, 3.0]
    assert norm == pytest.approx(1e30)
    with pytest.raises(jopeq.PayloadError, match="float16"):
        decoded(payload(w=np.array([0.0, 1e30])), server)


@pytest.mark.parametrize("keep", [{"keep_bytes": 0}, {}])
def test_each_is_decoded_once_and_read_in_any_order(monkeypatch, keep):
    """From memory, or beyond ``keep_bytes`` from a file."""
    made = []

    def counted(*arguments):
        made.append(arguments)
        return decoded_floats(*arguments)

    monkeypatch.setattr(decoding, "decoded_floats", counted)
    server = model(h=np.ones(3, np.float16), w=np.ones(2), v=np.ones((), np.float32), e=np.ones(0))
    replies = DecodedReplies(**keep)
    clients = []
    for i in range(5):
        sent = payload(h=np.ones(3), w=np.full(2, float(i)), v=np.ones(()), e=np.ones(0))
        clients.append(replies.add(opened_update(EXACT, sent, server), server))
    for name, expected in (("v", [2.0] * 5), ("w", [1.0 + i for i in range(5)])):
        assert [client[name].numpy().ravel()[0] for client in clients] == expected
    assert replies.norms == pytest.approx([(2 * i * i + 4) ** 0.5 for i in range(5)])
    assert len(made) == 5
    array = clients[1]["h"]
    copied = ArrayRecord({"h": array})["h"]  # Flower's constructor copies by ``data``
    assert copied.numpy().tolist() == array.numpy().tolist() == [2.0] * 3
    assert (array.dtype, array.shape) == ("float16", (3,))
    array.numpy()[:] = 9  # a strategy may change the values it reads
    assert array.numpy().tolist() == [2.0] * 3


def test_without_a_disk_models_stay_in_memory(monkeypatch, caplog):
    def full(**_):
        raise OSError("no space left")

    monkeypatch.setattr(decoding, "TemporaryFile", full)
    server = model(w=np.ones(2))
    opened = opened_update(EXACT, payload(w=np.ones(2)), server)
    (array,) = DecodedReplies(keep_bytes=0).add(opened, server).values()
    assert array.numpy().tolist() == [2.0, 2.0]
    assert "no space left" in caplog.text
