import pytest

from jopeq.errors import DataError
from jopeq.experiments.theory_page_parts import listed, reading


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (KeyError("rows"), "it lacks 'rows'"),
        (TypeError("3 is not a list"), r"TypeError: 3 is not a list"),
        (StopIteration(), r"\(StopIteration\)"),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError"),
    ],
)
def test_what_is_wrong_is_told_with_file_part_and_remedy(error, told):
    with pytest.raises(DataError, match=told) as caught, reading("aggregation"):
        raise error
    text = str(caught.value)
    assert text.startswith("theory.json, part 'aggregation': ")
    assert text.endswith("delete it and run `jopeq reproduce theory`")
    assert caught.value.__cause__ is error


def test_what_the_file_is_not_to_blame_for_goes_through():
    with pytest.raises(MemoryError), reading("dither"):
        raise MemoryError


def test_lists_read_as_sentences():
    assert listed(["Z"]) == "Z"
    assert listed(["Z", "A2"]) == "Z and A2"
    assert listed(["Z", "A2", "D4"]) == "Z, A2 and D4"
