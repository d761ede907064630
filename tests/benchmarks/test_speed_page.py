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


def test_the_page_shows_the_kept_numbers(page, kept, tmp_path):
    kept["codecs"]["schemes"]["sdq"]["bits"] = 77.125
    (tmp_path / "bench.json").write_text(json.dumps(kept))
    page.main(str(tmp_path / "bench.json"), str(tmp_path / "speed.md"), str(tmp_path / "figures"))
    assert "77.12" in (tmp_path / "speed.md").read_text()
    assert (tmp_path / "figures" / "speed.svg").read_bytes().startswith(b"<?xml")
    assert (ROOT / "docs" / "figures" / "speed.svg").exists()


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
