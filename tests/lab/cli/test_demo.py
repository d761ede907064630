"""``jopeq-lab demo``."""

from dataclasses import replace
from functools import lru_cache

import pytest

from jopeq_lab import demo
from jopeq_lab.training import data

pytest.importorskip("mlxtend")


def test_the_demo_trains_prints_and_draws(lab_command, tmp_path, monkeypatch):
    monkeypatch.setattr(demo.os, "cpu_count", lambda: 1)  # in this process
    monkeypatch.setattr(demo.kernels, "use", lambda mode: None)
    monkeypatch.setattr(data, "load", lru_cache(data.load))
    small = tuple(replace(one, each=40, seeds=min(one.seeds, 2)) for one in demo.STUDIES)
    monkeypatch.setattr(demo, "STUDIES", small)
    out, found, save = tmp_path / "demo", {}, demo.save_demo
    monkeypatch.setattr(
        demo, "save_demo", lambda all_, path: found.update(all_) or save(all_, path)
    )
    result = lab_command("demo", "--out", out, "--rounds", 2)
    assert result.exit_code == 0, result.output
    assert (out / "demo.png").stat().st_size > 10_000
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert max(len(line) for line in lines if "─" in line or "ε=" in line) <= 80
    assert {way.said for way in demo.WAYS.values()} <= {line[1:30].rstrip() for line in lines}
    for study in demo.STUDIES:
        for epsilon in demo.EPSILONS:
            for way in ("models", "records", "local", "alone", "sphere"):
                runs = found[study.title, way, epsilon]
                assert len(runs) == study.seeds
                assert 0.99 * epsilon < runs[0].epsilon <= epsilon * (1 + 1e-9)
        messages = {one.messages for one in found[study.title, "models", 1.0]}
        assert messages == ({7} if study.data == "mnist5k" else {5})
        config = found[study.title, "records", 1.0][0].config.sums
        assert (config.clients, config.records) == (10, 10 * study.each)
        assert found[study.title, "none", 1.0][0].test_accuracy > 0.4  # two rounds already
    epsilons = {
        name: found["paper", name, 4.0][0].history[-1].epsilon_sample for name in demo.PAPER
    }
    assert round(epsilons["jopeq"], 2) == 8.04  # and not the 4 that was asked for
    assert epsilons["response"] <= 4.0


def test_a_folder_that_cannot_be_is_named_before_the_work(lab_command, tmp_path):
    (tmp_path / "file").write_text("in the way")
    result = lab_command("demo", "--out", tmp_path / "file" / "demo")
    assert result.exit_code == 2, result.output
    assert "cannot be written" in result.output
