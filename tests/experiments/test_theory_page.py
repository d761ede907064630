"""docs/theory.md is what the kept results say."""

import re
from pathlib import Path

import pytest

from jopeq.errors import DataError
from jopeq.experiments.theory import PARTS, read_theory
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
    assert "1.24 |" in after  # rounded up
    assert "1.23 |" not in before


@needs_results
def test_nothing_is_left_to_fill_in():
    text = theory_page(read_theory(KEPT), Path("figures"))
    assert not re.search(r"\{\w|nan|None", text)
    prose = [line for line in text.splitlines() if not line.startswith(("|", "!"))]
    assert max(map(len, prose)) <= 100


def test_the_quick_setting_makes_a_page_too(quick_theory, tmp_path):
    write_theory_page(quick_theory[1], tmp_path / "theory.md", tmp_path / "figures")
    assert "16,384 samples a lattice" in (tmp_path / "theory.md").read_text()
    assert len(list((tmp_path / "figures").iterdir())) == len(FIGURES)


@needs_results
@pytest.mark.parametrize(
    ("part", "key"),
    [
        ("dither", "lattices"),  # the text misses it
        ("total_error", "densities"),  # only a figure does
        ("noise_share", "boundary"),
        ("aggregation", "rows"),
        ("convergence", "from_optimum"),
    ],
)
def test_a_part_without_a_key_is_named_and_nothing_is_written(part, key, tmp_path):
    parts = read_theory(KEPT)
    del parts[part][key]
    with pytest.raises(DataError, match=f"theory.json, part '{part}': it lacks '{key}': delete it"):
        write_theory_page(parts, tmp_path / "theory.md", tmp_path / "figures")
    assert not list(tmp_path.iterdir())


@needs_results
@pytest.mark.parametrize("part", PARTS)
def test_whatever_is_missing_or_wrong_the_part_is_blamed(part):
    """A page, or an error that names the part; no other."""
    blamed = 0
    for key in read_theory(KEPT)[part]:
        for spoilt in ({}, {key: 3}):
            parts = read_theory(KEPT)
            del parts[part][key]
            parts[part].update(spoilt)
            try:
                theory_page(parts, Path("figures"))
            except DataError as error:
                blamed += str(error).startswith(f"theory.json, part '{part}': it")
            else:
                blamed += 1
    assert blamed == 2 * len(read_theory(KEPT)[part])


@needs_results
def test_a_missing_part_is_named():
    parts = read_theory(KEPT)
    del parts["aggregation"]
    with pytest.raises(DataError, match="no part 'aggregation': run `jopeq reproduce theory`"):
        theory_page(parts, Path("figures"))
