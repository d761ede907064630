"""docs/speed.md is what the kept measurements say."""

import copy
import json
import re
from pathlib import Path

import pytest

from jopeq.experiments.speed_page import FIGURE, main, speed_page
from jopeq.experiments.speed_tables import (
    all_tables,
    error,
    gpu_target_table,
    millions,
    power,
    seconds,
    times,
)
from jopeq.experiments.speed_targets import TARGETS, outcomes

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "results" / "bench.json"

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.skipif(not KEPT.exists(), reason="no kept results")


@pytest.fixture
def kept():
    return json.loads(KEPT.read_text(encoding="utf-8"))


def test_the_committed_numbers_make_the_committed_page(tmp_path):
    page = tmp_path / "speed.md"
    main(str(KEPT), str(page), str(tmp_path / "figures"))
    assert page.read_text() == (ROOT / "docs" / "speed.md").read_text()
    assert (tmp_path / "figures" / FIGURE).read_bytes().startswith(b"<?xml")
    assert (ROOT / "docs" / "figures" / FIGURE).exists()


def test_the_numbers_come_from_the_results(kept):
    before = speed_page(kept)
    kept["codecs"]["schemes"]["sdq"]["bits"] = 77.125
    kept["aggregation"]["payloads"] = 31
    after = speed_page(kept)
    assert "77.12" in after
    assert "77.12" not in before
    assert "all 31 payloads" in after.replace("\n", " ")


def test_nothing_is_left_to_fill_in(kept):
    text = speed_page(kept).replace("kernels.use(None)", "")
    assert not re.search(r"\{\w|nan|None", text)
    prose = [line for line in text.splitlines() if not line.startswith(("|", "!"))]
    assert max(map(len, prose)) <= 100


def test_a_busy_machine_is_named(kept):
    kept["machine"]["load_before"] = 7.0
    assert "not quiet" in speed_page(kept)
    kept["machine"]["load_before"] = 0.1
    assert "not quiet" not in speed_page(kept)


def test_targets_can_be_missed_and_reached(kept):
    for factor, expected in ((1e-6, False), (1e6, True)):
        codecs = copy.deepcopy(kept["codecs"])
        for row in codecs["schemes"].values():
            for way in ("encode", "decode"):
                row[way] = [speed and speed * factor for speed in row[way]]
        found = list(outcomes(codecs))
        assert [one.target for one in found] == list(TARGETS)
        assert {one.is_reached for one in found} == {expected}
    missed = {**kept, "codecs": codecs}
    assert "are reached." in speed_page(missed)


def test_targets_are_judged_at_the_largest_size_that_both_sides_did(kept):
    codecs = kept["codecs"]
    codecs["schemes"]["sdq E8"]["eager"][-1] = None
    found = {(one.target.scheme, one.target.rival): one for one in outcomes(codecs)}
    assert found["sdq E8", "eager"].entries == codecs["sizes"][-2]
    assert found["sdq", "copy"].entries == codecs["sizes"][-1]


def test_gpu_targets_count_the_slowest_row(kept):
    gpu = kept["gpu"]
    before = {row[0]: row[-1] for row in gpu_target_table(gpu).rows}
    gpu["schemes"]["sdq R=8"]["encode"] = 1e9
    after = {row[0]: row[-1] for row in gpu_target_table(gpu).rows}
    assert after["sdq on Z"] == "no"
    del before["sdq on Z"], after["sdq on Z"]
    assert before == after


def test_tables_are_rectangular(kept):
    for shown in all_tables(kept):
        assert shown.rows, shown.title
        assert {len(row) for row in shown.rows} == {len(shown.head)}, shown.title


def test_numbers():
    assert (millions(2.36e9), millions(9.8e6), millions(1.25e6)) == ("2,360", "9.8", "1.2")
    assert (times(0.5), times(4.04), times(123.4)) == ("0.50×", "4.0×", "123×")
    assert (error(0.0), error(3.9e-4), error(0.334)) == ("0", "3.9e-04", "0.334")
    assert (power(1000), power(10**8), power(1500)) == ("10³", "10⁸", "1,500")
    assert (seconds(31.2), seconds(0.0123)) == ("31 s", "12 ms")
    assert seconds(4e-6) == "< 0.1 ms"
