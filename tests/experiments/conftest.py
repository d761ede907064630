"""Measurements as they are kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

KEPT = Path(__file__).parents[2] / "results"


@pytest.fixture
def kept_speed():
    """The measurements that are committed."""
    if not (KEPT / "bench.json").exists():
        pytest.skip("no kept results")
    return json.loads((KEPT / "bench.json").read_text(encoding="utf-8"))
