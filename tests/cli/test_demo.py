"""``jopeq demo``."""

from functools import lru_cache

import pytest

from jopeq.lab import demo
from jopeq.lab.training import data

pytest.importorskip("mlxtend")


def test_the_demo_trains_prints_and_draws(jopeq_command, tmp_path, monkeypatch):
    monkeypatch.setattr(demo.os, "cpu_count", lambda: 1)  # in this process
    kept = lru_cache(data.load)
    monkeypatch.setattr(data, "load", lambda name, *_: kept(name))
    out, seen, make = tmp_path / "demo", [], demo.demo_rows
    monkeypatch.setattr(demo, "demo_rows", lambda runs: seen.extend(make(runs)) or seen)
    result = jopeq_command("demo", "--out", out, "--rounds", 1, "--seeds", 1, "--people", 500)
    assert result.exit_code == 0, result.output
    assert "1 rounds, 10 clients, linear model; one seed" in result.stdout
    assert "±" not in result.stdout  # one value has no spread
    assert (out / "demo.png").stat().st_size > 10_000
    rows = {row.label: row for row in seen}
    names = ("sdq", "laplace+sdq", "jopeq", "response")
    assert list(rows) == ["none", *(f"{name}, R={rate}" for rate in (1, 2) for name in names)]
    assert rows["none"].snr_db is None
    assert rows["none"].epsilon == float("inf")
    assert round(rows["jopeq, R=1"].epsilon, 2) == 10.12
    for words in ("10.12", "500 people", *rows):
        assert words in result.stdout
    assert rows["response, R=1"].epsilon <= 4.0
    assert rows["response, R=1"].bits_per_parameter < 1.2
    assert float(rows["none"].accuracy) > 50  # one round already learns something


def test_a_folder_that_cannot_be_is_named_before_the_work(jopeq_command, tmp_path):
    (tmp_path / "file").write_text("in the way")
    result = jopeq_command("demo", "--out", tmp_path / "file" / "demo")
    assert result.exit_code == 2, result.output
    assert "cannot be written" in result.output
