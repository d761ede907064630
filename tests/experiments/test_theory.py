"""What was computed is kept, and nothing is computed twice."""

import json
from pathlib import Path

import pytest

from jopeq.errors import DataError
from jopeq.experiments import theory
from jopeq.experiments.theory import PARTS, read_theory, run_theory
from jopeq.experiments.theory_setting import FULL

KEPT = Path(__file__).parents[2] / "results" / "theory.json"


def test_all_is_kept_and_nothing_computed_twice(quick_theory, monkeypatch, quick):
    path, parts = quick_theory
    assert read_theory(path) == parts
    assert list(parts) == list(PARTS)
    boom = dict.fromkeys(PARTS, lambda effort: pytest.fail("computed again"))
    monkeypatch.setattr(theory, "PARTS", boom)
    assert run_theory(path, quick) == parts
    assert not list(path.parent.glob("*.new"))


def test_what_is_missing_or_made_otherwise_is_computed(quick_theory, tmp_path, monkeypatch, quick):
    path = tmp_path / "theory.json"
    kept = read_theory(quick_theory[0])
    del kept["noise_share"]
    kept["dither"]["effort"]["samples"] = 1
    path.write_text(json.dumps(kept))
    calls = []
    made = {name: lambda effort, name=name: {"made": name} for name in PARTS}
    monkeypatch.setattr(theory, "PARTS", made)
    parts = run_theory(path, quick, calls.append)
    assert calls == ["dither", "noise_share"]
    assert parts["dither"]["made"] == "dither"
    assert parts["aggregation"] == quick_theory[1]["aggregation"]


@pytest.mark.parametrize("text", ["{", "[1]", '{"dither": 3}'])
def test_a_broken_file_is_a_clear_error(text, tmp_path, quick):
    path = tmp_path / "theory.json"
    path.write_text(text)
    with pytest.raises(DataError, match="delete it and run"):
        run_theory(path, quick)
    assert path.read_text() == text


def test_a_file_that_cannot_be_written_shows_before_the_work(tmp_path, monkeypatch, quick):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("not a folder")
    boom = dict.fromkeys(PARTS, lambda effort: pytest.fail("worked in vain"))
    monkeypatch.setattr(theory, "PARTS", boom)
    with pytest.raises(OSError, match="file"):
        run_theory(in_the_way / "theory.json", quick)


def test_the_kept_results_are_of_the_full_setting(kept_theory):
    for part in kept_theory.values():
        assert part["effort"]["samples"] == FULL.samples
        assert {"jopeq", "numpy", "scipy"} <= part["versions"].keys()
    assert KEPT.stat().st_size < 300_000
