from jopeq.experiments.page_words import percent, reflow, short, signed, table


def test_words():
    assert table(("a", "b"), [("1", "2")]) == "| a | b |\n|---|---|\n| 1 | 2 |"
    assert (signed(-1.0), signed(-0.001), signed(0.5)) == ("−1.00", "0.00", "0.50")
    assert (percent(0.5), percent(0.023), percent(1e-6), percent(0.0)) == (
        "50%",
        "2.3%",
        "< 0.01%",
        "0%",
    )
    assert (short(7.63e-6), short(1e-5), short(0.25), short(2000.0)) == (
        "7.6·10⁻⁶",
        "10⁻⁵",
        "0.25",
        "2,000",
    )


def test_reflow_leaves_tables_code_and_headings():
    text = "# head\n\none\ntwo\n\n| a |\n|---|\n\n```python\n>>> 1\n1\n\n```\n\n- x\n  y\n- z\n"
    assert reflow(text, 20) == (
        "# head\n\none two\n\n| a |\n|---|\n\n```python\n>>> 1\n1\n\n```\n\n- x y\n- z\n"
    )
