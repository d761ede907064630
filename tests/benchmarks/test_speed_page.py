"""docs/speed.md is what the kept measurements say."""

import json
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "results" / "bench.json"


@pytest.fixture
def page(load):
    return load("speed_page")


@pytest.fixture
def tables(load):
    return load("speed_tables")


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
    "all targets are reached": lambda r: faster(r, 1e-6),
    "aggregate is the fastest way": lambda r: r["aggregation"]["schemes"]["sdq"].update(
        aggregate=1.0
    ),
}


def test_every_claim_can_fail_and_stops_the_page(page, kept):
    assert [claim for claim, _ in page.claims(kept)] == list(SPOIL)
    for claim, spoil in SPOIL.items():
        results = json.loads(json.dumps(kept))
        spoil(results)
        assert [name for name, holds in page.claims(results) if not holds] == [claim]
        with pytest.raises(ValueError, match=claim):
            page.speed_page(results)


def test_targets_are_judged_at_the_largest_size_that_both_sides_did(tables, kept):
    codecs = kept["codecs"]
    codecs["schemes"]["sdq E8"]["eager"][-1] = None
    found = {(one.scheme, one.rival): one for one in tables.outcomes(codecs)}
    assert found["sdq E8", "eager"].entries == codecs["sizes"][-2]
    assert found["sdq", "copy"].entries == codecs["sizes"][-1]
    faster(kept, 1e6)
    reached = [one.is_reached for one in tables.outcomes(codecs)]
    assert reached == [True] * len(tables.TARGETS)


def test_gpu_targets_count_the_slowest_row(tables, kept):
    gpu = kept["gpu"]
    before = {row[0]: row[-1] for row in tables.gpu_target_table(gpu).rows}
    gpu["schemes"]["sdq R=8"]["encode"] = 1e9
    after = {row[0]: row[-1] for row in tables.gpu_target_table(gpu).rows}
    assert after == {**before, "sdq on Z": "no"}


def test_tables_are_rectangular(tables, kept):
    for shown in tables.all_tables(kept).values():
        assert shown.rows, shown.title
        assert {len(row) for row in shown.rows} == {len(shown.head)}, shown.title


def test_numbers(tables):
    assert [tables.millions(v) for v in (2.36e9, 9.8e6, 1.25e6)] == ["2,360", "9.8", "1.2"]
    assert [tables.times(v) for v in (0.5, 4.04, 123.4)] == ["0.50×", "4.0×", "123×"]
    assert [tables.error(v) for v in (0.0, 3.9e-4, 0.334)] == ["0", "3.9e-04", "0.334"]
    assert [tables.power(v) for v in (1000, 10**8, 1500)] == ["10³", "10⁸", "1,500"]
    assert [tables.seconds(v) for v in (31.2, 0.0123, 4e-6)] == ["31 s", "12 ms", "< 0.1 ms"]


def test_the_lines_of_the_figure_are_the_measurements(page, kept, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    codecs = kept["codecs"]
    codecs["schemes"]["sdq"]["eager"][-1] = None  # was not measured
    page.draw_speed(codecs, tmp_path / "speed.svg")

    def expected(speeds):
        pairs = zip(codecs["sizes"], speeds, strict=True)
        return [(size, speed / 1e6) for size, speed in pairs if speed is not None]

    for panel in drawn[0].axes:
        way = panel.get_title()
        lines = [list(zip(*line.get_data(), strict=True)) for line in panel.lines]
        assert lines[:2] == [expected(codecs["copy"][kind]) for kind in ("into", "new")]
        rest = iter(zip(panel.lines[2:], lines[2:], strict=True))
        for name in page.SHOWN:
            line, points = next(rest)
            assert line.get_label() == name
            assert points == expected(codecs["schemes"][name][way])
            if way == "encode":  # the eager version, in the same colour
                dashed, points = next(rest)
                assert points == expected(codecs["schemes"][name]["eager"])
                assert dashed.get_color() == line.get_color()
