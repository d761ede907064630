from typer.testing import CliRunner

from jopeq.cli import app


def test_it_writes_the_page_and_names_what_is_left_out(tmp_path):
    (tmp_path / "some.jsonl").write_text('{"a": 1}\n{"a"\n')
    out = tmp_path / "report.html"
    done = CliRunner().invoke(app, ["report", str(tmp_path), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "left out: some.jsonl, line 2: not JSON" in done.output
    assert f"wrote {out}" in done.output
    assert out.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_an_empty_folder_is_an_error(tmp_path):
    out = tmp_path / "report.html"
    done = CliRunner().invoke(app, ["report", str(tmp_path), "--out", str(out)])
    assert done.exit_code == 2
    assert not out.exists()


def test_a_file_that_is_no_page_stays(tmp_path):
    kept = tmp_path / "some.jsonl"
    kept.write_text('{"a": 1}\n')
    done = CliRunner().invoke(app, ["report", str(tmp_path), "--out", str(kept)])
    assert done.exit_code == 2
    assert "no page of" in " ".join(done.output.replace("│", " ").split())
    assert kept.read_text() == '{"a": 1}\n'
    assert list(tmp_path.iterdir()) == [kept]
