import pytest
from typer.testing import CliRunner

from jopeq.cli import app
from jopeq.federated.checkpoint import CheckpointError


def test_unknown_names_are_refused():
    result = CliRunner().invoke(app, ["reproduce", "table9"])
    assert result.exit_code != 0
    assert "table9" in result.output


def test_missing_data_is_a_clear_error(tmp_path):
    arguments = ["reproduce", "fig2", "--data-dir", str(tmp_path), "--results", str(tmp_path / "r")]
    page = ["--page", str(tmp_path / "docs" / "results.md"), "--processes", "1"]
    result = CliRunner().invoke(app, [*arguments, *page])
    assert result.exit_code != 0
    assert "Traceback" not in result.output
    assert not (tmp_path / "docs").exists()


def test_the_page_alone_needs_no_data(tmp_path):
    page = tmp_path / "docs" / "results.md"
    arguments = ["reproduce", "page", "--results", str(tmp_path), "--page", str(page)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert page.read_text().startswith("# Results")


def test_a_page_is_not_replaced_by_nothing(tmp_path):
    page = tmp_path / "results.md"
    page.write_text("# Results of weeks")
    arguments = ["reproduce", "page", "--results", str(tmp_path / "typo"), "--page", str(page)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "is no folder" in " ".join(result.output.replace("│", " ").split())
    assert page.read_text() == "# Results of weeks"


@pytest.mark.parametrize(
    ("name", "option"),
    [
        *(("page", option) for option in ("--data-dir", "--rounds", "--device", "--seconds")),
        *(("fig6", option) for option in ("--rounds", "--seeds", "--processes")),
    ],
)
def test_options_without_use_are_refused(tmp_path, monkeypatch, name, option):
    monkeypatch.chdir(tmp_path)  # where the page would be written
    arguments = ["reproduce", name, "--results", str(tmp_path), option, "3"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert f"{name} has no use for {option}" in " ".join(result.output.split())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("option", "place"),
    [("--results", "file/results"), ("--page", "file/page.md"), ("--page", "folder.md")],
)
def test_places_that_cannot_be_written_to_are_named(tmp_path, option, place):
    (tmp_path / "file").touch()
    (tmp_path / "folder.md").mkdir()
    given = {"--results": str(tmp_path), "--page": str(tmp_path / "page.md")}
    given[option] = str(tmp_path / place)
    name = "theory" if option == "--results" else "page"
    arguments = [part for pair in given.items() for part in pair]
    result = CliRunner().invoke(app, ["reproduce", name, *arguments])
    assert result.exit_code == 2
    assert option in result.output


def test_table2_out_of_time_begins_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("jopeq.commands.reproduce.load_with_bar", lambda *names: None)
    monkeypatch.setattr("jopeq.experiments.snr_conventions.tensor_sizes", lambda: [64])
    page = tmp_path / "docs" / "results.md"
    arguments = ["reproduce", "table2", "--results", str(tmp_path), "--page", str(page)]
    result = CliRunner().invoke(app, [*arguments, "--seconds", "0", "--processes", "1"])
    assert result.exit_code == 0, result.output
    assert "the same command goes on" in result.output
    assert "Table II" not in page.read_text()
    assert (tmp_path / "table2.jsonl").read_text() == ""
    assert not (tmp_path / "unfinished").exists()
    assert len((tmp_path / "table2_snr.jsonl").read_text().splitlines()) == 12


def test_the_device_is_not_ignored(tmp_path, monkeypatch):
    monkeypatch.setattr("jopeq.commands.reproduce.load_with_bar", lambda *names: None)
    arguments = ["reproduce", "table2", "--results", str(tmp_path), "--seconds", "0"]
    result = CliRunner().invoke(app, [*arguments, "--device", "warp"])
    assert result.exit_code != 0
    assert "device must be" in result.output


@pytest.mark.parametrize("place", ["file/page.md", "folder.md"])
@pytest.mark.parametrize("name", ["theory", "fig2", "fig4"])
def test_a_page_that_cannot_be_written_shows_before_the_work(tmp_path, monkeypatch, name, place):
    (tmp_path / "file").touch()
    (tmp_path / "folder.md").mkdir()
    monkeypatch.setattr("paper.theory.run", pytest.fail)
    monkeypatch.setattr("jopeq.commands.reproduce.load_with_bar", pytest.fail)
    page, results = str(tmp_path / place), str(tmp_path / "results")
    arguments = ["reproduce", name, "--results", results, "--page", page]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "--page" in result.output
    assert not (tmp_path / "results").exists()


def test_a_checkpoint_of_other_options_is_named(tmp_path, monkeypatch):
    def runner(job):
        raise CheckpointError("folder: the checkpoint is of another run")

    monkeypatch.setattr("jopeq.commands.reproduce.load_with_bar", lambda *names: None)
    monkeypatch.setattr("jopeq.commands.reproduce._runner", lambda *options: runner)
    page, results = str(tmp_path / "page.md"), str(tmp_path)
    arguments = ["reproduce", "fig2", "--results", results, "--page", page, "--processes", "1"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "the checkpoint is of another run" in " ".join(result.output.split())
