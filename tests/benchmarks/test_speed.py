"""Numbers of the benchmarks are put in order, and missing peers are named; speed is not tested."""

import sys

import pytest

pytest.importorskip("numba")
pytest.importorskip("matplotlib")
torch = pytest.importorskip("torch")


def test_sizes_that_would_take_too_long_are_left_out(load):
    codec = load("codec")
    assert codec._is_affordable([], 10**8)
    assert codec._is_affordable([1e6], int(1e6 * codec.LONGEST) - 1)
    assert not codec._is_affordable([1e6], int(1e6 * codec.LONGEST) + 1)
    assert not codec._is_affordable([None], 10)
    assert codec.sizes(1e5) == [1000, 10_000, 100_000]


def test_peers_that_are_missing_are_named(load, monkeypatch):
    peers = load("peers")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setitem(sys.modules, "cmprs", None)
    found = peers.measure_peers(1000, lambda text: None)
    assert set(found["missing"]) == {
        name for name in peers.PEERS if "zstd" in name or "EDEN" in name
    }
    assert found["rows"]["float16, NumPy"]["bits"] == 16
    assert found["rows"]["int8, torch.quantize_per_tensor"]["bits"] == 8
    assert 0 < found["rows"]["float16, NumPy"]["error"] < 1e-6


def test_all_ways_of_adding_up_are_timed(load, monkeypatch):
    aggregation = load("aggregation")
    monkeypatch.setattr(aggregation, "_PAYLOADS", 3)
    monkeypatch.setattr(aggregation, "NAMES", ("sdq", "jopeq A2"))
    found = aggregation.measure_aggregation(1000, lambda text: None)
    for row in found["schemes"].values():
        assert min(row[way] for way in ("aggregate", "decode", "plain")) > 0


def test_stages_add_up(load, monkeypatch):
    stages = load("stages")
    monkeypatch.setattr(stages, "NAMES", ("sdq", "jopeq A2"))
    found = stages.measure_stages(1000, lambda text: None)
    for row in found["schemes"].values():
        for way in ("encode", "decode"):
            parts = row[way].copy()
            whole = parts.pop("all")
            assert sum(parts.values()) == pytest.approx(whole)
    assert found["schemes"]["sdq"]["encode_bytes"] == 2
