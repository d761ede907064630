"""The committed results, read once; figures drawn quickly."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def results():
    """Everything behind docs/results.md."""
    from paper.kept import read_results

    return read_results(ROOT / "results")


@pytest.fixture
def plain_figures(monkeypatch):
    """Figures are drawn and saved, small and with nothing moved to its best place."""
    figure = pytest.importorskip("matplotlib.figure")
    save = figure.Figure.savefig

    def savefig(self, *arguments, **options):
        self.set_layout_engine("none")
        save(self, *arguments, **{**options, "dpi": 30})

    monkeypatch.setattr(figure.Figure, "savefig", savefig)
