"""``jopeq reproduce theory`` from results that are there already."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jopeq.cli import app

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "results" / "theory.json"

pytest.importorskip("matplotlib")


@pytest.mark.skipif(not KEPT.exists(), reason="no kept results")
def test_the_page_and_its_figures_are_written(tmp_path):
    shutil.copy(KEPT, tmp_path / "theory.json")
    page = tmp_path / "docs" / "theory.md"
    arguments = ["reproduce", "theory", "--results", str(tmp_path), "--page", str(page)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert page.read_text() == (ROOT / "docs" / "theory.md").read_text()
    drawn = {path.name for path in (page.parent / "figures").iterdir()}
    assert drawn == {path.name for path in (ROOT / "docs" / "figures").glob("theory-*.svg")}


def test_a_broken_file_is_a_clear_error_and_nothing_is_written(tmp_path):
    (tmp_path / "theory.json").write_text("not JSON")
    page = tmp_path / "docs" / "theory.md"
    arguments = ["reproduce", "theory", "--results", str(tmp_path), "--page", str(page)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code != 0
    assert "cannot be read" in result.output
    assert "Traceback" not in result.output
    assert not page.parent.exists()


@pytest.mark.skipif(not KEPT.exists(), reason="no kept results")
def test_a_part_that_lacks_something_is_a_clear_error_and_nothing_is_written(tmp_path):
    parts = json.loads(KEPT.read_text())
    del parts["dither"]["lattices"]
    (tmp_path / "theory.json").write_text(json.dumps(parts))
    page = tmp_path / "docs" / "theory.md"
    arguments = ["reproduce", "theory", "--results", str(tmp_path), "--page", str(page)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    output = " ".join(result.output.replace("│", " ").split())
    assert "theory.json, part 'dither': it lacks 'lattices': delete it and run" in output
    assert "Traceback" not in result.output
    assert not list(page.parent.iterdir())


@pytest.mark.parametrize(
    "option", [("--rounds", "3"), ("--seeds", "1"), ("--processes", "2"), ("--data-dir", ".")]
)
def test_options_it_has_no_use_for_are_refused(option, tmp_path):
    arguments = ["reproduce", "theory", "--results", str(tmp_path), *option]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code != 0
    assert f"theory has no use for {option[0]}" in " ".join(result.output.split())
    assert not list(tmp_path.iterdir())
