"""Numbers of the benchmarks are put in order, and missing peers are named; speed is not tested."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("numba")
pytest.importorskip("matplotlib")
torch = pytest.importorskip("torch")


def test_the_best_call_counts(load, monkeypatch):
    timing = load("timing")
    clock = iter([0.0, 2.0, 2.0, 3.0, 3.0, 5.0, 5.0, 7.0])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock))
    assert timing.best_seconds(lambda: None, least=3) == 1.0


def test_long_calls_are_not_repeated(load, monkeypatch):
    timing = load("timing")
    clock = iter([0.0, 4.0])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock))
    assert timing.best_seconds(lambda: None) == 4.0


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


def test_a_broken_release_is_told_from_a_missing_one(load):
    reason = load("peers")._reason
    gone = ModuleNotFoundError("No module named 'zstandard'", name="zstandard")
    assert reason(gone) == "No module named 'zstandard'"
    broken = ModuleNotFoundError("No module named 'cmprs.eden.q'", name="cmprs.eden.q")
    assert "lacks its own module cmprs.eden.q" in reason(broken)


def test_a_peer_that_can_be_imported_is_called(load, monkeypatch):
    """With the two calls of its interface; the release on PyPI lacks modules of its own."""
    coder = SimpleNamespace(
        forward=lambda x: SimpleNamespace(tx=x, tcontext="kept"),
        backward=lambda tx, context: tx if context == "kept" else None,
    )
    monkeypatch.setitem(sys.modules, "cmprs", SimpleNamespace(eden=lambda bits: coder))
    encode, decode, size = load("peers")._eden()
    update = np.arange(8, dtype=np.float32)
    assert (decode(encode(update)) == update).all()
    assert size(encode(update)) == 2


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


def test_numbers_of_a_gpu_are_taken_in(load, tmp_path):
    speed = load("speed")
    row = {"bits": 2.0, "encode": 1.23456789e11}
    spec = '["sdq",{"lattice":"A2","rate":2.0}]'
    (tmp_path / "gpu.json").write_text(json.dumps({"copy": 4e12, "entries": 10, spec: row}))
    given = (tmp_path / "gpu.json", "a device", "2020-02-02", "a note")
    found = speed.rounded(speed.gpu_section(*given))
    assert (found["device"], found["date"]) == ("a device", "2020-02-02")
    assert (found["copy"], found["note"]) == (4e12, "a note")
    assert found["schemes"] == {"sdq A2 R=2": {"bits": 2.0, "encode": 1.2346e11}}
