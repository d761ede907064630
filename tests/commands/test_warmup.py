"""``jopeq warmup``."""

import pytest
from typer.testing import CliRunner

from jopeq.cli import app
from jopeq.kernels import cache


def test_it_compiles_and_says_where(tmp_path):
    pytest.importorskip("numba")
    result = CliRunner().invoke(app, ["warmup"])
    assert result.exit_code == 0, result.output
    assert "compiled" in result.output
    assert cache.is_compiled()
    again = CliRunner().invoke(app, ["warmup"])
    assert "already compiled" in again.output


def test_without_numba_it_says_what_to_install(monkeypatch):
    from jopeq import kernels

    def fail():
        raise ImportError("compiled kernels need Numba (x): pip install 'jopeq[fast]'")

    monkeypatch.setattr(kernels, "load", fail)
    result = CliRunner().invoke(app, ["warmup"])
    assert result.exit_code == 2
    assert "jopeq[fast]" in result.output


def test_without_a_cache_folder_it_says_so(monkeypatch):
    from jopeq import kernels
    from jopeq.commands import warmup

    monkeypatch.setattr(kernels, "load", lambda: True)
    monkeypatch.setattr("jopeq.kernels.cache.cache_folder", lambda: None)
    assert warmup.warmup
    result = CliRunner().invoke(app, ["warmup"])
    assert result.exit_code == 0
    assert "NUMBA_CACHE_DIR" in result.output
