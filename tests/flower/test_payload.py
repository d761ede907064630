from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, RecordDict

from jopeq import PayloadError
from jopeq.flower.payload import STYPE, from_content, to_array, to_record


def test_round_trip():
    assert from_content(RecordDict({"arrays": to_record(b"JoPQ")})) == b"JoPQ"


def test_flower_itself_cannot_read_it():
    with pytest.raises(TypeError, match=STYPE):
        to_array(b"JoPQ").numpy()


def test_plain_arrays_are_not_a_payload():
    content = RecordDict({"arrays": ArrayRecord([np.zeros(3)])})
    with pytest.raises(PayloadError, match="put JoPEQMod among the mods"):
        from_content(content)


@pytest.mark.parametrize("count", [0, 2])
def test_exactly_one(count):
    record = ArrayRecord({str(i): Array("uint8", (1,), STYPE, b"x") for i in range(count)})
    with pytest.raises(PayloadError, match=f"holds {count} payloads"):
        from_content(RecordDict({"arrays": record}))
