import pytest
from typer.testing import CliRunner

from jopeq.cli import app

pytest.importorskip("mlxtend")


def test_the_demo_trains_prints_and_draws(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    out = tmp_path / "demo"
    result = CliRunner().invoke(app, ["demo", "--out", str(out), "--rounds", "1", "--seeds", "1"])
    assert result.exit_code == 0, result.output
    for label in ("none", "sdq, R=1", "laplace+sdq, R=2", "jopeq, R=1", "response, R=2"):
        assert label in result.stdout
    assert "10.12" in result.stdout
    assert "1 rounds, 10 clients, linear model" in result.stdout
    assert "one seed" in result.stdout
    assert "±" not in result.stdout  # one value has no spread
    assert (out / "demo.png").stat().st_size > 10_000


def test_a_folder_that_cannot_be_is_named_before_the_work(tmp_path):
    (tmp_path / "file").write_text("in the way")
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "file" / "demo")])
    assert result.exit_code == 2, result.output
    assert "--out" in result.output
    assert "name folders that can" in " ".join(result.output.replace("│", " ").split())


def test_missing_data_are_named(tmp_path, monkeypatch):
    from jopeq.federated import data as bundled

    monkeypatch.setattr("jopeq.federated.runs.os.cpu_count", lambda: 1)  # in this process

    def refuse(name):
        raise ImportError(f"no module named {name}")

    monkeypatch.setattr(bundled, "import_module", refuse)
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path), "--rounds", "1"])
    assert result.exit_code == 2, result.output
    assert "pip install mlxtend" in " ".join(result.output.replace("│", " ").split())
