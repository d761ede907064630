"""The costs of secure sums and the errors of surveys in the docs are those that are kept."""

import json
import shutil

import pytest


def test_the_table_of_the_docs_is_what_the_kept_rows_make(load, tmp_path, monkeypatch):
    pytest.importorskip("flwr")
    secure = load("secure")
    rows = secure.rows()
    assert {row["clients"] for row in rows} >= {10, 100}
    assert all(row["flower"]["up"] > 7 * row["jopeq"]["up"] for row in rows)
    page = shutil.copy(secure.PAGE, tmp_path / "hospitals.md")
    monkeypatch.setattr(secure, "PAGE", page)
    secure.page()
    assert page.read_text("utf-8") == (secure.ROOT / "docs/hospitals.md").read_text("utf-8")


def test_the_errors_of_surveys_are_those_of_the_last_kept_run(load):
    surveys = load("surveys")
    kept = json.loads(surveys.KEPT.read_text("utf-8").splitlines()[-1])
    assert surveys.table(kept) in surveys.PAGE.read_text("utf-8")
    assert f"over {kept['runs']} runs" in surveys.PAGE.read_text("utf-8")
    assert all(kept[name]["99%"] < aim for name, (_, aim) in surveys.AIMS.items())
    found = surveys.errors(runs=3)
    assert all(max(found[name]) < 2 * aim for name, (_, aim) in surveys.AIMS.items())
