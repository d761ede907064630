"""docs/speed.md is what the kept measurements say."""

import json
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")


ROOT = Path(__file__).parents[2]
KEPT = ROOT / "results" / "bench.json"


@pytest.fixture
def page(load):
    return load("speed_page")


@pytest.fixture
def kept():
    return json.loads(KEPT.read_text(encoding="utf-8"))


SPOIL = {
    "the machine was quiet": lambda r: r["machine"].update(load_before=7.0),
    "aggregate is the fastest way": lambda r: r["aggregation"]["schemes"]["sdq"].update(SLOW),
}
SLOW = {"aggregate": 1.0}


def test_every_claim_can_fail_and_stops_the_page(page, kept):
    assert [claim for claim, _ in page.claims(kept)] == list(SPOIL)
    for claim, spoil in SPOIL.items():
        results = json.loads(json.dumps(kept))
        spoil(results)
        assert [name for name, holds in page.claims(results) if not holds] == [claim]
        with pytest.raises(ValueError, match=claim):
            page.speed_page(results)
