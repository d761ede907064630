"""docs/theory.md is what the kept results say."""

import re
from pathlib import Path

import pytest

from jopeq.experiments.theory import read_theory
from jopeq.experiments.theory_figures import FIGURES
from jopeq.experiments.theory_page import theory_page, write_theory_page

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "results" / "theory.json"

pytest.importorskip("matplotlib")
needs_results = pytest.mark.skipif(not KEPT.exists(), reason="no kept results")


@needs_results
def test_the_committed_results_make_the_committed_page(tmp_path):
    page = tmp_path / "theory.md"
    write_theory_page(read_theory(KEPT), page, tmp_path / "figures")
    committed = ROOT / "docs" / "theory.md"
    assert page.read_text() == committed.read_text()
    for name in FIGURES:
        drawn = tmp_path / "figures" / f"{name}.svg"
        assert drawn.read_bytes().startswith(b"<?xml")
        assert (committed.parent / "figures" / drawn.name).exists()
        assert f"(figures/{name}.svg)" in page.read_text()


@needs_results
def test_the_numbers_come_from_the_results():
    parts = read_theory(KEPT)
    before = theory_page(parts, Path("figures"))
    parts["aggregation"]["trials"] = 77
    parts["noise_share"]["examples"][0]["exact"] = 1.2345
    after = theory_page(parts, Path("figures"))
    assert "77 payloads of every client" in after.replace("\n", " ")
    assert "1.23 |" in after
    assert "1.23 |" not in before


@needs_results
def test_nothing_is_left_to_fill_in():
    text = theory_page(read_theory(KEPT), Path("figures"))
    assert not re.search(r"\{\w|nan|None", text)
    prose = [line for line in text.splitlines() if not line.startswith(("|", "!"))]
    assert max(map(len, prose)) <= 100
