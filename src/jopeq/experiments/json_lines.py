"""Records kept line by line in a file: added one at a time, read back as objects."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, TextIO, TypeVar

from jopeq.errors import DataError

Record = TypeVar("Record")


def add_record(file: TextIO, record: Any) -> None:
    """Write the fields of an object, and see to it that they are on the disk."""
    file.write(json.dumps(vars(record), ensure_ascii=False) + "\n")
    file.flush()
    os.fsync(file.fileno())


def read_records(path: Path, kind: type[Record]) -> list[Record]:
    """The records of a file; none if there is no file."""
    if not path.exists():
        return []
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            records.append(kind(**json.loads(line)))
        except (ValueError, TypeError) as error:
            raise DataError(
                f"{path}, line {number} is no {kind.__name__} ({error}): delete that line"
            ) from error
    return records
