"""``python -m paper``."""

import pytest

import paper.__main__ as command


def options(folder):
    return ["--results", str(folder), "--page", str(folder / "docs" / "paper.md")]


def test_a_page_is_not_replaced_by_nothing(tmp_path, capsys):
    page = tmp_path / "docs" / "paper.md"
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
    monkeypatch.setattr("paper.results.compute", pytest.fail)
    monkeypatch.setattr(command, "_load", pytest.fail)
    for place in ("file/page.md", "folder.md"):
        arguments = [name, "--results", str(tmp_path / "r"), "--page", str(tmp_path / place)]
        assert command.main(arguments) == 2
        assert place.partition("/")[0] in capsys.readouterr().err
    assert not (tmp_path / "r").exists()
