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


def content(flower, **groups):
    return RecordDict({k: flower.records(arrays, k)[k] for k, arrays in groups.items()})


def test_one_record_keeps_its_names_and_several_are_told_apart(flower):
    one = content(flower, arrays={"w": np.ones(2)})
    two = content(flower, a={"w": np.ones(2)}, b={"w": np.zeros(3)})
    assert list(Model(one).places) == ["w"]
    assert list(Model(two).places) == ["a/w", "b/w"]
    clash = {"a": {"b/w": np.ones(1)}, "a/b": {"w": np.ones(1)}}
    with pytest.raises(ReplyError, match="'a/b/w'"):
        Model(content(flower, **clash))


@pytest.mark.parametrize("record", ["arrays", "renamed"])
def test_what_a_reply_leaves_out_is_no_update(flower, record):
    before = Model(content(flower, arrays={"w": np.ones(2), "frozen": np.ones(2)}))
    after = content(flower, **{record: {"w": np.ones(2)}})
    assert list(update_of(before, after, ["w", "frozen"], is_private=False)) == ["w"]


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
    before = Model(content(flower, arrays={"w": np.ones(2), "v": np.ones(3), "n": np.array(1)}))
    after = content(flower, arrays={"n": np.array(5), "extra": np.ones(1), "v": np.full(3, 3.0)})
    if w is not None:
        after["arrays"]["w"] = w
    with caplog.at_level(logging.WARNING, logger="flwr"):
        update = update_of(before, after, ["w", "v"], is_private=True)
    found = [(name, value.tolist()) for name, value in update.items()]
    assert found == [("w", [0.0, 0.0]), ("v", [2.0, 2.0, 2.0])]
    assert "array 'w' counts as unchanged" in caplog.text
    assert "'extra' of record 'arrays' of the reply: no part of the model" in caplog.text
