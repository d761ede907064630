import json
import shutil
from pathlib import Path

import pytest

from jopeq.experiments.report_records import Configurations, kept_records

KEPT = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[1, 2]", "not an object"),
        ('{"label": "none"}', "lacks model"),
        ("nonsense", "not JSON"),
        ("[" * 5000, "not JSON"),
    ],
)
def test_lines_that_are_no_runs_are_left_out(tmp_path, line, said):
    path = tmp_path / "fig2.jsonl"
    shutil.copy(KEPT / path.name, path)
    whole = kept_records(path)
    assert (whole.kind, whole.problems) == ("runs", [])
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    found = kept_records(path)
    assert found.records == whole.records
    (problem,) = found.problems
    assert problem.startswith(f"fig2.jsonl, line {len(whole.records) + 1}: {said}")


def test_most_records_say_what_a_file_holds(tmp_path):
    path = tmp_path / "some.jsonl"
    attack = {"label": "", "spec": "", "method": "", "epoch": 0, "ssim": []}
    path.write_text("".join(json.dumps(record) + "\n" for record in (attack, attack, {"a": 1})))
    found = kept_records(path)
    assert (found.kind, len(found.records), len(found.problems)) == ("attacks", 2, 1)
    path.write_text('{"a": 1}\n')
    assert kept_records(path).kind == "records"


def test_a_file_that_cannot_be_read_is_a_problem(tmp_path):
    found = kept_records(tmp_path)  # a folder
    assert found.records == []
    assert "cannot be read" in found.problems[0]


def test_a_file_of_something_else_is_named_in_few_lines(tmp_path):
    path = tmp_path / "binary.jsonl"
    path.write_bytes(bytes(range(256)) * 200)
    found = kept_records(path)
    assert found.records == []
    assert len(found.problems) == 6
    assert "more lines cannot be read either" in found.problems[-1]
    path.write_text("x\n" * 6)
    assert len(kept_records(path).problems) == 6  # "one more line" would be no shorter


def test_equal_configurations_have_one_number():
    known = Configurations()
    links = [known.link(file, {"lr": lr}) for file, lr in (("a", 0.1), ("b", 0.1), ("a", 0.2))]
    assert [link.text for link in links] == ["c1", "c1", "c2"]
    (table,) = known.section().tables
    assert list(table.rows) == [("c1", "a, b", "lr = 0.1"), ("c2", "a", "lr = 0.2")]
    assert list(table.anchors) == [link.anchor for link in links[1:]]
