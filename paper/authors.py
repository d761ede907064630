"""Numbers of the paper and of its authors' code, which nothing here makes: results/authors.jsonl.

Each line names its source, the version, when it was run, and what was changed to make it run.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "results" / "authors.jsonl"


@lru_cache
def theirs(source: str, table: str) -> dict[str, dict[str, Any]]:
    """The rows of a table by name: ``source`` is "paper", "code" or "repository"."""
    lines = map(json.loads, FILE.read_text(encoding="utf-8").splitlines())
    found = {one["row"]: one for one in lines if (one["source"], one["table"]) == (source, table)}
    if not found:
        raise KeyError(f"{FILE.name} has no {table} of the {source}")
    return found
