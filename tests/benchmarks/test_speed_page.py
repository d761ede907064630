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


def faster(results, factor):
    for row in results["codecs"]["schemes"].values():
        for way in ("encode", "decode"):
            row[way] = [speed and speed * factor for speed in row[way]]


def test_the_committed_numbers_make_the_committed_page(page, tmp_path):
    page.main(str(KEPT), str(tmp_path / "speed.md"), str(tmp_path / "figures"))
    assert (tmp_path / "speed.md").read_text() == (ROOT / "docs" / "speed.md").read_text()
    assert (tmp_path / "figures" / "speed.svg").read_bytes().startswith(b"<?xml")
    assert (ROOT / "docs" / "figures" / "speed.svg").exists()


def test_the_numbers_come_from_the_results(page, kept):
    before = page.speed_page(kept)
    kept["codecs"]["schemes"]["sdq"]["bits"] = 77.125
    kept["aggregation"]["payloads"] = 31
    after = page.speed_page(kept)
    assert "77.12" in after
    assert "77.12" not in before
    assert "all 31 payloads" in after


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


def test_targets_are_judged_at_the_largest_size_that_both_sides_did(load, kept):
    """On the CPU; on a GPU the slowest row of a scheme counts."""
    codecs, gpu, tables = kept["codecs"], kept["gpu"], load("speed_tables")
    codecs["schemes"]["sdq E8"]["eager"][-1] = None
    found = {(one.scheme, one.rival): one for one in tables.outcomes(codecs)}
    assert found["sdq E8", "eager"].entries == codecs["sizes"][-2]
    assert found["sdq", "copy"].entries == codecs["sizes"][-1]
    faster(kept, 1e6)
    reached = [one.is_reached for one in tables.outcomes(codecs)]
    assert reached == [True] * len(tables.TARGETS)
    before = {row[0]: row[-1] for row in tables.gpu_target_table(gpu).rows}
    gpu["schemes"]["sdq R=8"]["encode"] = 1e9
    after = {row[0]: row[-1] for row in tables.gpu_target_table(gpu).rows}
    assert after == {**before, "sdq on Z": "no"}
