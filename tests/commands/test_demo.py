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
    assert "one seed" in result.stdout
    assert "±" not in result.stdout  # one value has no spread
    assert (out / "demo.png").stat().st_size > 10_000
