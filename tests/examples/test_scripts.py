"""The scripts of examples/, run from their first line to their last."""

import logging
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tools import quickstart

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


def test_ten_hospitals(printed):
    pytest.importorskip("sklearn")
    shown = printed("quickstart/ten_hospitals.py")
    assert 0.8 < float(re.search(r"statistics and training: ε = ([\d.]+) of 1", shown)[1]) < 0.9
    found = dict(re.findall(r"^(\w[\w, ]+): ([\d.]+)% ±", shown, re.MULTILINE))
    asked, bounds, plain = map(float, found.values())
    assert asked > 91.0  # 94.1 ± 0.5
    assert plain > asked - 0.5
    assert plain > bounds - 0.5


def test_the_quickstart_shows_the_program_as_it_is():
    """Outputs and pictures apart, which another run changes."""
    source = quickstart.PROGRAM.read_text("utf-8")
    bare = quickstart.page_of(source, [quickstart.Shown()] * len(quickstart.cells_of(source)))
    page = quickstart.PAGE.read_text("utf-8")
    for picture in re.findall(r"^!\[.*\]\((.*)\)$", page, flags=re.MULTILINE):
        drawing = (quickstart.PAGE.parent / picture).read_text("utf-8")
        assert quickstart.follow_page(drawing) == drawing  # it turns dark with its page
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
