"""The committed results, read once."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def results():
    """Everything behind docs/paper.md."""
    from paper.results import read_results

    return read_results(ROOT / "results")
