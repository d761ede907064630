"""Follow the data: which functions an update passes on its way to bytes and back.

    python tools/hops.py          print the table
    python tools/hops.py --write  put it into CONTRIBUTING.md

Counted are the functions of ``jopeq`` that one call runs on the plain path, comprehensions too, the
files they lie in, and how often the next call lies in another file.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

import jopeq
from jopeq import kernels

ROOT = Path(jopeq.__file__).parent
PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
SCHEMES = {
    "jopeq": {"epsilon": 4.0, "rate": 1.0},
    "sdq": {"rate": 2.0},
}
ENTRIES = 1000


@dataclass(frozen=True)
class Walk:
    """What one call passed."""

    functions: int
    files: int
    changes: int


def follow(call: Callable[[], Any]) -> Walk:
    """The walk of the second call: the first fills the caches."""
    call()
    path: list[CodeType] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(f"{ROOT}{os.sep}"):
            path.append(code)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    files = [code.co_filename for code in path]
    changes = sum(one != two for one, two in pairwise(files))
    return Walk(len(set(path)), len(set(files)), changes)


def walks() -> dict[tuple[str, str], Walk]:
    """Encode and decode of each scheme, without compiled kernels."""
    kernels.use("off")
    try:
        found = {}
        for name, parameters in SCHEMES.items():
            scheme = jopeq.scheme(name, **parameters)
            update = np.linspace(-1.0, 1.0, ENTRIES, dtype=np.float32)
            payload = scheme.encode(update)
            found[name, "encode"] = follow(lambda s=scheme, x=update: s.encode(x))
            found[name, "decode"] = follow(lambda s=scheme, p=payload: s.decode(p))
        return found
    finally:
        kernels.use(None)


def table() -> str:
    """The walks in Markdown."""
    lines = ["| | functions | files | changes of file |", "|---|---|---|---|"]
    for (name, what), walk in walks().items():
        lines.append(f"| `{name}`, `{what}` | {walk.functions} | {walk.files} | {walk.changes} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table, and write it where that is asked for."""
    found = table()
    print(found)
    if "--write" in sys.argv[1:]:
        text = PAGE.read_text("utf-8")
        marks = r"(<!-- hops -->\n).*?(\n<!-- /hops -->)"
        changed, times = re.subn(marks, rf"\g<1>{found}\g<2>", text, flags=re.DOTALL)
        if times != 1:
            raise SystemExit(f"{PAGE} has no marks <!-- hops --> … <!-- /hops -->")
        PAGE.write_text(changed, "utf-8")


if __name__ == "__main__":
    main()
