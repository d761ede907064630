from dataclasses import replace

import pytest

from jopeq.channel.channel import TOTAL
from jopeq.channel.design import optimal_channel
from jopeq.channel.response import randomized_response
from jopeq.channel.tables import from_entry, to_entry, verify
from jopeq.errors import DesignError


def test_tampered_entries_are_refused():
    entry = to_entry(optimal_channel(4.0, 8))
    assert from_entry(entry, 4.0) == optimal_channel(4.0, 8)
    with pytest.raises(DesignError, match="not private enough"):
        from_entry(entry, 3.999)
    first = list(entry["counts"][0])
    first[0], first[-1] = first[0] + first[-1] // 2, first[-1] - first[-1] // 2
    with pytest.raises(DesignError, match="not private enough"):
        from_entry({**entry, "counts": [first, *entry["counts"][1:]]}, 4.0)
    with pytest.raises(DesignError, match="bias"):
        from_entry({**entry, "values": [v * 1.0001 for v in entry["values"]]}, 4.0)
    with pytest.raises(ValueError, match=r"sum to 2\*\*32"):
        from_entry({**entry, "counts": [[1] * 8, *entry["counts"][1:]]}, 4.0)


def test_verify_refuses_impossible_letters():
    sure = replace(randomized_response(4.0, 2), counts=((TOTAL, 0), (0, TOTAL)), values=(-1, 1))
    with pytest.raises(DesignError, match="not private enough"):
        verify(sure, 4.0)
