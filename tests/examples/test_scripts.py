"""The scripts of examples/, run from their first line to their last."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def printed(tmp_path, monkeypatch, capsys):
    """What a script prints, run in an empty folder."""

    def run(name, *words):
        path = str(ROOT / "examples" / name)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [path, *words])
        runpy.run_path(path, run_name="__main__")
        return capsys.readouterr().out

    return run


def test_compress_an_update(printed):
    shown = printed("compress_an_update.py")
    errors = [float(value) for value in re.findall(r"mean of .*: error ([\d.]+)", shown)]
    assert len(errors) == 3
    assert errors[0] > 5 * errors[1] > 25 * errors[2]
    assert "asked for ε = 4, spends 10.12" in shown
    assert "a flipped bit: the payload is corrupted" in shown


def test_train_privately(printed):
    pytest.importorskip("sklearn")
    shown = printed("train_privately.py")
    accuracies = [float(value) for value in re.findall(r"test accuracy ([\d.]+)%", shown)]
    assert len(accuracies) == 3
    assert min(accuracies) > 85.0
    assert "the ledger stopped after 2 updates, ε = 16 spent" in shown


def test_attack_and_defend(printed, tmp_path):
    pytest.importorskip("sklearn")
    shown = printed("attack_and_defend.py", "grid.png")
    found = {
        (method, label.strip()): float(ssim)
        for method, label, ssim in re.findall(
            r"^(\w+) +(.+?) +SSIM ([-\d.]+);", shown, re.MULTILINE
        )
    }
    assert len(found) == 9
    assert found["label", "raw"] > 0.5
    assert found["adaptive", "sdq, R=8"] > 0.5
    for label in ("jopeq, ε=3, R=8", "response, ε=3, R=8", "response, ε=1, R=2"):
        assert found["label", label] < 0.25
    assert found["adaptive", "response, ε=1, R=2"] < found["adaptive", "sdq, R=8"] - 0.3
    assert (tmp_path / "grid.png").stat().st_size > 10_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["grid.png"]
    assert "saved grid.png" in shown


def test_aggregate_dask(tmp_path):
    pytest.importorskip("distributed")
    pytest.importorskip("pyarrow")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / "aggregate_dask.py"), "--kill"],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUTF8": "1"},
        timeout=1800,  # only a hang reaches it
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    shown = done.stdout
    assert "killed a worker that had a sum" in shown
    found = re.findall(
        r"^(one process|Dask): 2,000 reports, mean (\w+), error", shown, re.MULTILINE
    )
    assert [name for name, _ in found] == ["one process", "Dask"]
    assert found[0][1] == found[1][1]
    assert not list(tmp_path.iterdir())
