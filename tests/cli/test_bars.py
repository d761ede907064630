import io

from rich.console import Console

from jopeq.cli import output as bars
from jopeq.cli.output import LiveBar, runs_bar


def seen(monkeypatch, *, show):
    """What a terminal gets to see of a bar that is moved twice."""
    terminal = Console(file=io.StringIO(), force_terminal=True, width=120)
    monkeypatch.setattr(bars, "Console", lambda stderr: terminal)
    with LiveBar("seed 3", 20, show=show) as bar:
        bar.move(5, "loss 0.5")
        bar._progress.refresh()
        bar.move(7, "loss 0.4", "another name")
    return terminal.file.getvalue()


def test_a_live_bar_shows_description_place_and_figures(monkeypatch):
    text = seen(monkeypatch, show=True)
    for words in ("seed 3", "5/20", "loss 0.5", "another name", "7/20", "loss 0.4"):
        assert words in text


def test_it_can_be_silent(monkeypatch):
    assert seen(monkeypatch, show=False).strip() == ""


def test_a_bar_of_runs_counts_them():
    terminal = Console(file=io.StringIO(), force_terminal=True, width=120)
    with runs_bar(terminal) as bar:
        bar.update(bar.add_task("training", total=9), completed=4, description="jopeq: 0.91")
    text = terminal.file.getvalue()
    assert "jopeq: 0.91" in text
    assert "4/9" in text
