"""``python -m paper``."""

import pytest

import paper.__main__ as command
from jopeq.lab.training.config import TrainConfig
from paper.kept_runs import Job, read, seeds


@pytest.fixture
def no_data(monkeypatch):
    monkeypatch.setattr(command, "_load", lambda *names: None)


def options(folder):
    return ["--results", str(folder), "--page", str(folder / "docs" / "results.md")]


def test_a_page_is_not_replaced_by_nothing(tmp_path, capsys):
    page = tmp_path / "docs" / "results.md"
    page.parent.mkdir()
    page.write_text("# Results of weeks")
    elsewhere = ["--page", str(page), "--data-dir", str(tmp_path)]
    assert command.main(["fig2", *options(tmp_path / "typo"), *elsewhere]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert page.read_text() == "# Results of weeks"


@pytest.mark.parametrize("name", ["theory", "fig2", "fig4"])
def test_a_page_that_cannot_be_written_shows_before_the_work(tmp_path, monkeypatch, capsys, name):
    (tmp_path / "file").touch()
    (tmp_path / "folder.md").mkdir()
    monkeypatch.setattr("paper.theory.run", pytest.fail)
    monkeypatch.setattr(command, "_load", pytest.fail)
    for place in ("file/page.md", "folder.md"):
        arguments = [name, "--results", str(tmp_path / "r"), "--page", str(tmp_path / place)]
        assert command.main(arguments) == 2
        assert place.partition("/")[0] in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


def test_a_tiny_run_stops_and_goes_on_where_it_stopped(tmp_path, monkeypatch, capsys, no_data):
    """Two runs of one round: the first command has no time, the second makes both and no page."""
    config = TrainConfig(data="digits", clients=2, rounds=1, local_steps=1, compile="off")

    def jobs(data_dir=None, count=2):
        return [Job("none", one) for one in seeds(config, count)]

    monkeypatch.setitem(command.TRAININGS, "table1", jobs)
    arguments = ["table1", *options(tmp_path), "--processes", "1"]
    assert command.main([*arguments, "--seconds", "0"]) == 2  # there is nothing to show
    assert "0 of 2 runs are there; out of time: the same" in capsys.readouterr().out
    monkeypatch.setattr("paper.results.run", lambda results, page: [])
    assert command.main([*arguments, "--seconds", "600", "--seeds", "1"]) == 0
    assert command.main(arguments) == 0
    assert "2 of 2 runs are there\n" in capsys.readouterr().out
    assert [run.seed for run in read(tmp_path / "table1.jsonl")] == [0, 1]
