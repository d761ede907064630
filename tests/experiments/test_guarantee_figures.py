import re
from pathlib import Path

from jopeq.experiments import guarantee_figures
from jopeq.experiments.whole_update import whole_update_table

PAGE = Path(__file__).parents[2] / "docs" / "guarantees.md"


def test_every_figure_of_the_page_is_drawn_alike_each_time(tmp_path, monkeypatch):
    few = whole_update_table((20,), (2.0,), (4, 20))
    monkeypatch.setattr(guarantee_figures, "whole_update_table", lambda: few)
    for folder in ("one", "two"):
        guarantee_figures.save_guarantees(tmp_path / folder)
    shown = re.findall(r"\(figures/([^)]+)\)", PAGE.read_text(encoding="utf-8"))
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == sorted(shown)
    for name in shown:
        first, second = ((tmp_path / folder / name).read_bytes() for folder in ("one", "two"))
        assert first.startswith(b"\x89PNG")
        assert first == second
