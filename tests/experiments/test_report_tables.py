from jopeq.experiments.report_html import Value
from jopeq.experiments.report_records import Configurations
from jopeq.experiments.report_tables import Source, record_tables

LONG = list(range(9))


def _tables(*records, **more):
    tables = record_tables(records, Source("mine.jsonl", {}, Configurations(), **more), "mine")
    return [
        (list(t.headings[:-1]), [list(row[:-1]) for row in t.rows], t.is_folded) for t in tables
    ]


def test_short_lists_and_objects_stay_in_the_row():
    record = {"a": [1, 2.5, None], "b": {"c": True, "d": {"e": "x"}}, "settings": {"lr": 1}}
    assert _tables(record) == [(["a", "b: c", "b: d: e"], [["1, 2.5, –", True, "x"]], False)]


def test_long_lists_are_folded_and_named_by_the_words_of_their_record():
    ((_, rows, _), (head, places, is_folded)) = _tables(
        {"name": "x", "times": LONG, "size": 1}, {"name": "y", "times": LONG[:2], "size": 2}
    )
    assert rows == [["x", 1], ["y", 2]]
    assert (head, is_folded) == (["name", "times"], True)
    assert places == [*(["x", n] for n in LONG), ["y", 0], ["y", 1]]


def test_records_without_words_of_their_own_are_numbered():
    for names in ({}, {"name": "x"}):
        ((head, rows, _), (long_head, places, _)) = _tables(*2 * [{**names, "n": 5, "t": LONG}])
        assert head == ["row", *names, "n"]
        assert [row[0] for row in rows] == [1, 2]
        assert long_head == ["row", "t"]
        assert places[-1] == [2, 8]


def test_lists_of_lists_are_several_columns():
    _, (head, rows, _) = _tables({"n": 1, "t": [[1, 2], [3]]})
    assert head == ["t 1", "t 2"]
    assert rows == [[1, 3], [2, None]]


def test_whatever_else_there_is_stays_readable():
    records = ({"t": LONG}, {"t": 3}, {"t": [{"a": 1}, 2]}, {})
    _, (_, rows, _) = _tables(*records)
    assert rows[9:] == [[2, 3], [3, '{"a": 1}'], [3, 2]]
    assert _tables({}) == []


def test_null_is_infinite_where_that_is_what_it_stands_for():
    infinity = Value("∞", float("inf"))
    assert _tables({"e": None, "f": None}, infinite=("e",)) == [
        (["e", "f"], [[infinity, None]], False)
    ]
