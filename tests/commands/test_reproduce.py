from typer.testing import CliRunner

from jopeq.cli import app


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
