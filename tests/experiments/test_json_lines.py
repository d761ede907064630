from dataclasses import dataclass

import pytest

from jopeq.errors import DataError
from jopeq.experiments.json_lines import add_record, read_records


@dataclass(frozen=True)
class Point:
    x: float
    name: str = ""


def test_what_is_added_is_read_back(tmp_path):
    path = tmp_path / "points.jsonl"
    assert read_records(path, Point) == []
    points = [Point(1.5, "ε"), Point(-2.0)]
    with path.open("a", encoding="utf-8") as file:
        for point in points:
            add_record(file, point)
            assert read_records(path, Point)[-1] == point  # at once
    path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert read_records(path, Point) == points


@pytest.mark.parametrize("line", ['{"x": 1, "na', "[1]", '{"y": 2}'])
def test_a_spoilt_line_is_named_with_the_remedy(tmp_path, line):
    path = tmp_path / "points.jsonl"
    path.write_text('{"x": 1}\n' + line + "\n")
    with pytest.raises(DataError, match=r"points\.jsonl, line 2 is no Point .*delete that line"):
        read_records(path, Point)
