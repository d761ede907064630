"""``jopeq doctor --warmup``."""

import pytest

from jopeq import kernels
from jopeq.kernels import cache


def test_it_compiles_and_says_where(jopeq_command):
    pytest.importorskip("numba")
    result = jopeq_command("doctor", "--warmup")
    assert result.exit_code == 0, result.output
    assert "compiled" in result.output
    assert cache.is_compiled()
    assert "already compiled" in jopeq_command("doctor", "--warmup").output


def test_without_numba_it_says_what_to_install(jopeq_command, monkeypatch):
    def fail():
        raise ImportError("compiled kernels need Numba (x): pip install 'jopeq[fast]'")

    monkeypatch.setattr(kernels, "load", fail)
    result = jopeq_command("doctor", "--warmup")
    assert result.exit_code == 2
    assert "jopeq[fast]" in result.output
