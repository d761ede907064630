"""docs/speed.md is what the kept measurements say."""

import re
from pathlib import Path

import pytest

from jopeq.experiments.speed_page import FIGURE, main, speed_page

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "results" / "bench.json"

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.skipif(not KEPT.exists(), reason="no kept results")


def test_the_committed_numbers_make_the_committed_page(tmp_path):
    page = tmp_path / "speed.md"
    main(str(KEPT), str(page), str(tmp_path / "figures"))
    assert page.read_text() == (ROOT / "docs" / "speed.md").read_text()
    assert (tmp_path / "figures" / FIGURE).read_bytes().startswith(b"<?xml")
    assert (ROOT / "docs" / "figures" / FIGURE).exists()


def test_the_numbers_come_from_the_results(kept_speed):
    before = speed_page(kept_speed)
    kept_speed["codecs"]["schemes"]["sdq"]["bits"] = 77.125
    kept_speed["aggregation"]["payloads"] = 31
    after = speed_page(kept_speed)
    assert "77.12" in after
    assert "77.12" not in before
    assert "all 31 payloads" in after.replace("\n", " ")


def test_nothing_is_left_to_fill_in(kept_speed):
    text = speed_page(kept_speed).replace("kernels.use(None)", "")
    assert not re.search(r"\{\w|nan|None", text)
    prose = [line for line in text.splitlines() if not line.startswith(("|", "!"))]
    assert max(map(len, prose)) <= 100


def test_a_busy_machine_is_named(kept_speed):
    kept_speed["machine"]["load_before"] = 7.0
    assert "not quiet" in speed_page(kept_speed)
    kept_speed["machine"]["load_before"] = 0.1
    assert "not quiet" not in speed_page(kept_speed)


@pytest.mark.parametrize(
    ("factor", "words"), [(1e-6, " are reached. What the others meet:"), (1e6, " are reached.\n")]
)
def test_missed_targets_are_told_from_reached_ones(kept_speed, factor, words):
    for row in kept_speed["codecs"]["schemes"].values():
        for way in ("encode", "decode"):
            row[way] = [speed and speed * factor for speed in row[way]]
    assert words in speed_page(kept_speed)
