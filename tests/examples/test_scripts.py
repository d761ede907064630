"""The scripts of examples/, run from their first line to their last."""

import logging
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tools import tutorials

ROOT = Path(__file__).parents[2]


@pytest.fixture
def printed(tmp_path, monkeypatch, capsys):
    """What a script prints, run in an empty folder."""
    logger = logging.getLogger("flwr")  # a script may silence it
    level = logger.level

    def run(name, *words):
        path = str(ROOT / "examples" / name)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [path, *words])
        runpy.run_path(path, run_name="__main__")
        return capsys.readouterr().out

    yield run
    logger.setLevel(level)


def test_compress_an_update(printed):
    shown = printed("compress_an_update.py")
    errors = [float(value) for value in re.findall(r"mean of .*: error ([\d.]+)", shown)]
    assert len(errors) == 3
    assert errors[0] > 5 * errors[1] > 25 * errors[2]
    assert "asked for ε = 4, spends 10.12" in shown
    assert "a flipped bit: the payload is corrupted" in shown


def test_own_loop(printed):
    pytest.importorskip("sklearn")
    shown = printed("own_loop.py")
    assert len(re.findall(r"round \d+: 5 hospitals", shown)) == 9
    shares = [int(found) for found in re.findall(r"(\d+) shares", shown)]
    assert shares == [13, 13, 13, 13, 9]  # one attempt was repeated; the last was left out


def test_attack_and_defend(printed, tmp_path):
    pytest.importorskip("sklearn")
    shown = printed("tutorials/attack_and_defend.py")
    rows = re.findall(r"^(\w+) +(.+?) +SSIM +([-\d.]+);", shown, re.MULTILINE)
    found = {(method, label.strip()): float(ssim) for method, label, ssim in rows}
    assert len(found) == 11
    assert found["label", "raw"] > 0.5
    assert found["adaptive", "sdq, R=8"] > 0.5
    for label in ("jopeq, ε=3, R=8", "response, ε=3, R=8", "response, ε=1, R=2", "sphere, ε=8"):
        assert found["label", label] < 0.25
    for label in ("response, ε=1, R=2", "sphere, ε=8"):
        assert found["adaptive", label] < found["adaptive", "sdq, R=8"] - 0.3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adaptive.svg", "label.svg"]
    assert all(path.stat().st_size > 10_000 for path in tmp_path.iterdir())


def test_your_pytorch_model(printed):
    pytest.importorskip("sklearn")
    shown = printed("tutorials/your_pytorch_model.py")
    found = re.findall(r"^(\w+): ([\d.]+)%", shown, re.MULTILINE)
    assert [name for name, _ in found] == ["none", "sdq", "response", "clients"]
    assert min(float(accuracy) for _, accuracy in found) > 75.0


def test_private_flower(printed):
    pytest.importorskip("flwr.supercore.task_identity")
    pytest.importorskip("sklearn")
    shown = printed("tutorials/private_flower.py")
    assert float(re.search(r"the same, private: ([\d.]+)%", shown)[1]) > 70.0
    assert "SumMod [budget-spent]" in shown


def test_secure_aggregation(printed):
    shown = printed("tutorials/secure_aggregation.py")
    error = float(re.search(r"18 hospitals, error ([\d.]+)", shown)[1])
    expected = float(re.search(r"expected: ([\d.]+)", shown)[1])
    assert abs(error / expected - 1) < 5 * (2 / 200) ** 0.5  # χ² of 200 entries


def test_ten_hospitals(printed):
    pytest.importorskip("sklearn")
    shown = printed("tutorials/ten_hospitals.py")
    assert 0.8 < float(re.search(r"statistics and training: ε = ([\d.]+) of 1", shown)[1]) < 0.9
    found = dict(re.findall(r"^(\w[\w, ]+): ([\d.]+)% ±", shown, re.MULTILINE))
    asked, bounds, plain = map(float, found.values())
    assert asked > 91.0  # 94.1 ± 0.5
    assert plain > asked - 0.5
    assert plain > bounds - 0.5


def test_plan_a_budget(printed):
    shown = printed("tutorials/plan_a_budget.py")
    assert "response  ε = 628,000 per client" in shown
    assert "spent so far: 8 in 2 rounds" in shown


@pytest.mark.parametrize("name", tutorials.NAMES)
def test_tutorials_show_the_programs_as_they_are(name):
    """Outputs and pictures apart, which another run changes."""
    source = (ROOT / "examples" / "tutorials" / f"{name}.py").read_text("utf-8")
    bare = tutorials.page_of(name, source, [tutorials.Shown()] * len(tutorials.cells_of(source)))
    page = (tutorials.PAGES / f"{name}.md").read_text("utf-8")
    for picture in re.findall(r"^!\[.*\]\((.*)\)$", page, flags=re.MULTILINE):
        drawing = (tutorials.PAGES / picture).read_text("utf-8")
        assert tutorials.follow_page(drawing) == drawing  # it turns dark with its page
    page = re.sub(r"^```text\n.*?^```\n\n", "", page, flags=re.MULTILINE | re.DOTALL)
    assert re.sub(r"^!\[.*\)\n\n", "", page, flags=re.MULTILINE) == bare


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
    told = r"^(one process|Dask): 2,000 reports, mean (\w+), error"
    found = re.findall(told, shown, re.MULTILINE)
    assert [name for name, _ in found] == ["one process", "Dask"]
    assert found[0][1] == found[1][1]
    assert not list(tmp_path.iterdir())
