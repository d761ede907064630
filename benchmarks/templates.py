"""The Markdown templates next to the benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2


def rendered(name: str, *values: Any, **more: Any) -> str:
    """A template of this folder, filled in; a name that it lacks is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name).render(*values, **more)
