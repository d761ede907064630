"""Benchmarks import one another by name, as scripts of one folder do."""

import importlib
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def load(monkeypatch):
    """Import a benchmark by its name; afterwards no benchmark is importable."""
    torch = pytest.importorskip("torch")
    from jopeq import kernels

    monkeypatch.syspath_prepend(str(FOLDER))
    before, count = set(sys.modules), torch.get_num_threads()
    yield importlib.import_module
    torch.set_num_threads(count)
    kernels.use(None)
    kernels.set_threads(None)
    for name in set(sys.modules) - before:
        if (FOLDER / f"{name}.py").exists():
            del sys.modules[name]
