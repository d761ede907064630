import logging

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, RecordDict

from jopeq import PayloadError
from jopeq.flower.arrays import (
    STYPE,
    Model,
    ReplyError,
    from_content,
    to_record,
    update_of,
)


def test_exactly_one_payload_comes_back():
    assert from_content(RecordDict({"arrays": to_record(b"JoPQ")})) == b"JoPQ"
    with pytest.raises(TypeError, match=STYPE):
        to_record(b"JoPQ")["payload"].numpy()  # Flower itself cannot read it
    for count in (0, 2):
        record = ArrayRecord({str(i): Array("uint8", (1,), STYPE, b"x") for i in range(count)})
        with pytest.raises(PayloadError, match=str(count)):
            from_content(RecordDict({"arrays": record}))
    with pytest.raises(PayloadError, match="PayloadMod"):
        from_content(RecordDict({"arrays": ArrayRecord([np.zeros(3)])}))


def content(flower, **arrays):
    return RecordDict(flower.records(arrays))


def test_a_message_holds_one_model(flower):
    for groups in ({}, {"a": {"w": np.ones(2)}, "b": {"w": np.zeros(3)}}):
        records = {key: flower.records(arrays, key)[key] for key, arrays in groups.items()}
        with pytest.raises(ReplyError, match="one ArrayRecord"):
            Model(RecordDict(records))


@pytest.mark.parametrize("names", [("w",), ("w", "v", "extra")])
def test_without_privacy_a_reply_holds_the_models_own_arrays(flower, names):
    before = Model(content(flower, w=np.ones(2), v=np.ones(2)))
    after = content(flower, **dict.fromkeys(names, np.ones(2)))
    with pytest.raises(ReplyError, match=rf"'{'extra' if 'extra' in names else 'v'}'"):
        update_of(before, after, ["w", "v"], is_private=False)


@pytest.mark.parametrize(
    "w",
    [
        None,
        Array(np.ones(3)),
        *(Array(np.ones(2, kind)) for kind in (np.int64, np.complex64)),
        *(Array("float64", (2,), kind, b"?") for kind in ("numpy.ndarray", "unknown")),
    ],
)
def test_a_whole_update_has_every_array_whatever_came_back(flower, caplog, w):
    before = Model(content(flower, w=np.ones(2), v=np.ones(3), n=np.array(1)))
    after = content(flower, n=np.array(5), extra=np.ones(1), v=np.full(3, 3.0))
    if w is not None:
        after["arrays"]["w"] = w
    with caplog.at_level(logging.WARNING, logger="flwr"):
        update = update_of(before, after, ["w", "v"], is_private=True)
    found = [(name, value.tolist()) for name, value in update.items()]
    assert found == [("w", [0.0, 0.0]), ("v", [2.0, 2.0, 2.0])]
    assert "array 'w' counts as unchanged" in caplog.text
    assert "'extra' of the reply: no part of the model" in caplog.text
