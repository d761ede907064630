"""The costs of secure sums in the docs are those that are kept."""

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
