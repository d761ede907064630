import math

from jopeq.experiments.report_html import Link, Section, Table, Value, html_page


def test_words_from_files_are_only_words(read_html):
    table = Table(("<b>",), [("<script>alert(1)</script>",)], "<i>")
    text = html_page("<title>", "<p>", [Section("n", "<h1>", tables=[table])], ["<u>"])
    assert "<script>alert" not in text
    assert read_html(text).tables == [[["<b>"], ["<script>alert(1)</script>"]]]


def test_cells_sort_by_value_and_missing_ones_say_so():
    row = (1, 2.5, None, Value("∞", math.inf), Value("?", None), Link("c1", "x"), True, 12345.0)
    text = html_page("t", "", [Section("n", "n", tables=[Table("abcdefgh", [row], "c")])], [])
    for part in ('data-key="1.0">1<', 'data-key="2.5"', "data-missing>–", 'data-key="inf">∞'):
        assert part in text
    assert "data-missing>?" in text
    assert ">yes<" in text
    assert ">12,345<" in text
