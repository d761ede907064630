"""The pictures of docs/entries.md and docs/guarantees.md show what the schemes do."""

import numpy as np
import pytest

from jopeq.entries.quantized import JoPEQ
from tools.concept_figures import pipeline_steps


def test_the_steps_end_in_what_the_scheme_decodes(monkeypatch):
    steps = pipeline_steps()
    assert [step[0] for step in steps].count("server") == 3
    assert [step[4].split(":")[0] for step in steps if step[4]] == ["private", "shared", "shared"]
    assert set(steps[4][3]) <= {"0", "1", "2", "3"}
    monkeypatch.setattr(JoPEQ, "decode", lambda self, payload: np.zeros(4))
    with pytest.raises(AssertionError, match="do not make the payload"):
        pipeline_steps()
