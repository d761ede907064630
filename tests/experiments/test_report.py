"""The page is read back with an HTML parser; tests/browser clicks through it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jopeq.errors import DataError
from jopeq.experiments.report import report, write_report

KEPT = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def whole(read_html):
    text, problems = report(KEPT)
    return read_html(text), text, problems


def test_all_that_was_kept_is_on_the_page(whole):
    page, text, problems = whole
    assert problems == []
    assert {"table1", "fig2", "fig3", "theory", "speed", "configurations"} <= set(page.ids)
    assert page.figures >= 8
    assert text.count("<svg") == page.figures
    assert "jopeq ε=4 R=1" in {row[0] for table in page.tables for row in table}
    assert page.ids.index("table1") < page.ids.index("fig2") < page.ids.index("theory")


def test_numbers_are_those_of_the_files(whole):
    runs = [json.loads(line) for line in (KEPT / "table1.jsonl").read_text().splitlines()]
    mine = [r for r in runs if (r["label"], r["model"], r["rounds"]) == ("jopeq", "linear", 95)]
    mean = sum(100 * run["test_accuracy"] for run in mine) / len(mine)
    table = next(t for t in whole[0].tables if t[1][:3] == ["none", "cnn", "mnist"])
    row = next(row for row in table if row[:4] == ["jopeq", "linear", "mnist", "95"])
    assert row[4] == str(len(mine))
    assert row[5].startswith(f"{mean:.2f} ± ")
    assert row[11] == f"{mine[0]['epsilon']:.4g}" == "10.12"


def test_every_row_names_a_configuration_with_versions(whole):
    page = whole[0]
    for table in page.tables[:-1]:
        assert table[0][-1] == "configuration"
        assert all(row[-1].startswith("c") for row in table[1:])
    settings = [row[2] for row in page.tables[-1][1:]]
    assert any("torch = 2." in text and "lr = 0.1" in text for text in settings)
    untold = [text for text in settings if "torch = " not in text and "numpy = " not in text]
    assert all(text.startswith("device = NVIDIA") for text in untold)  # the benchmarks on a GPU
    assert "settings and versions, as recorded" in page.text


def test_the_mse_of_an_attack_is_the_mean_over_images(whole):
    records = [json.loads(line) for line in (KEPT / "attacks.jsonl").read_text().splitlines()]
    table = next(table for table in whole[0].tables if "MSE" in table[0])
    shown = [float(row[table[0].index("MSE")]) for row in table[1:]]
    means = [sum(record["mse"]) / len(record["mse"]) for record in records]
    assert shown == pytest.approx(means, rel=1e-3)
    assert "SSIM and MSE: means over images" in whole[0].text


def test_the_page_is_valid_enough_and_needs_nothing_else(whole):
    page, text, _ = whole
    assert len(page.ids) == len(set(page.ids))
    inner = [link.removeprefix("#") for link in page.links]
    assert inner
    assert set(inner) <= set(page.ids)
    assert all(a.startswith(("#", "data:image/png;base64,")) for a in page.addresses)
    assert "@import" not in text
    assert "default-src 'none'" in text


def test_a_half_written_line_is_left_out_and_named(some_results, read_html):
    with (some_results / "table1.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"label": "jopeq", "sche')
    text, problems = report(some_results)
    assert len(problems) == 1
    last = len((some_results / "table1.jsonl").read_text().splitlines())
    assert f"table1.jsonl, line {last}: not JSON" in problems[0]
    assert problems[0] in read_html(text).text


def test_wrong_types_cost_one_section_and_no_other(some_results, read_html):
    record = json.loads((KEPT / "fig3.jsonl").read_text().splitlines()[0])
    (some_results / "fig3.jsonl").write_text(json.dumps({**record, "test_accuracy": "high"}) + "\n")
    text, problems = report(some_results)
    assert [problem.split(":")[0] for problem in problems] == ["fig3.jsonl"]
    assert {"table1", "fig2"} <= set(read_html(text).ids)


def test_files_of_any_name_have_ids_of_their_own(tmp_path, read_html):
    names = (
        "theory.jsonl",
        "a b.jsonl",
        "a+b.jsonl",
        "file-a-b.jsonl",
        "problems.jsonl",
        "ε.jsonl",
    )
    for name in names:
        (tmp_path / name).write_text('{"a": 1}\nnonsense\n')
    (tmp_path / "theory.json").write_text('{"mine": {"rows": [{"a": 1}]}}')
    page = read_html(report(tmp_path)[0])
    assert len(page.ids) == len(set(page.ids))
    assert not any(set(name) & set(" +ε") for name in page.ids)
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    assert len(page.tables) == len(names) + 2


def test_json_that_is_not_known_is_named(some_results, read_html):
    (some_results / "mine.json").write_text("{}")
    (some_results / "bench.json").write_text('{"machine": {}}')
    text, problems = report(some_results)
    assert [problem.split(":")[0] for problem in problems] == ["bench.json", "mine.json"]
    assert "speed" not in read_html(text).ids


@pytest.mark.parametrize("content", ['{"a": 1}\n', "<!DOCTYPE html>\n<p>mine</p>", "", b"\xff\x00"])
def test_only_a_page_of_ours_is_replaced(tmp_path, content):
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n')
    out = tmp_path / "mine"
    out.write_bytes(content if isinstance(content, bytes) else content.encode())
    before = out.read_bytes()
    with pytest.raises(DataError, match=r"mine is there and no page of .*--out, or delete"):
        write_report(tmp_path, out)
    assert out.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "other.jsonl"]
    out.unlink()
    for number in (1, 2):
        (tmp_path / "other.jsonl").write_text(f'{{"new": {number}}}\n')
        write_report(tmp_path, out)
        assert f">{number}</td>" in out.read_text()


def test_the_results_themselves_are_not_overwritten(some_results):
    out = some_results / "table1.jsonl"
    before = out.read_bytes()
    with pytest.raises(DataError, match=r"table1\.jsonl is there"):
        write_report(some_results, out)
    assert out.read_bytes() == before


def test_nothing_to_show_is_an_error(tmp_path):
    with pytest.raises(DataError, match="holds nothing to report"):
        report(tmp_path)
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(DataError, match=r"empty\.jsonl: empty"):
        report(tmp_path)
    with pytest.raises(DataError, match="is no folder"):
        report(tmp_path / "nowhere")


def test_the_page_is_written_whole_or_not_at_all(tmp_path):
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n')
    out = tmp_path / "deep" / "report.html"
    assert write_report(tmp_path, out) == []
    before = out.read_text()
    (tmp_path / "other.jsonl").unlink()
    with pytest.raises(DataError):
        write_report(tmp_path, out)
    assert out.read_text() == before
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(DataError, match="cannot be written"):
        write_report(tmp_path, tmp_path / "deep")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "other.jsonl"]


def test_a_page_that_cannot_replace_the_old_one_leaves_it(tmp_path, monkeypatch):
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n')
    out = tmp_path / "deep" / "report.html"
    write_report(tmp_path, out)
    before = out.read_text()
    (tmp_path / "other.jsonl").write_text('{"a": 2}\n')

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(DataError, match="no space left"):
        write_report(tmp_path, out)
    assert out.read_text() == before
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]
