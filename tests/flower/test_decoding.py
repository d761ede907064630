import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, RecordDict

import jopeq
from jopeq.flower.arrays import Model
from jopeq.flower.payload_strategy import decode_floats, open_update

EXACT = jopeq.scheme("none")


def model(**arrays):
    record = ArrayRecord({name: Array(np.asarray(value)) for name, value in arrays.items()})
    return Model(RecordDict({"arrays": record}))


def payload(**arrays):
    return EXACT.encode(arrays)


def decoded(payload, server):
    return decode_floats(open_update(EXACT, payload, server, list(server.floats)), server)


def test_entries_that_are_infinite_in_the_model_hide_nothing():
    """A mask of −inf: the norm is the update's own, and other entries may not overflow."""
    server = model(w=np.array([-np.inf, 0.0], np.float16))
    found, norm = decoded(payload(w=np.array([1e30, 3.0])), server)
    assert found["w"].tolist() == [-np.inf, 3.0]
    assert norm == pytest.approx(1e30)
    with pytest.raises(jopeq.PayloadError, match="float16"):
        decoded(payload(w=np.array([0.0, 1e30])), server)
