import numpy as np
import pytest

import jopeq
from jopeq.schemes.parameters import as_annotated, to_json


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("bool", np.True_, True),
        ("int", np.int64(3), 3),
        ("int | None", None, None),
        ("int | None", np.uint8(5), 5),
        ("float", 4, 4.0),
        ("float", np.float32(0.5), 0.5),
        ("float | None", None, None),
        ("str", "update", "update"),
    ],
)
def test_numbers_of_any_type_become_to_json(kind, value, expected):
    found = as_annotated("x", kind, value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("bool", 1, "x must be True or False, got 1"),
        ("bool", None, "x must be True or False, got None"),
        ("int", 2.0, "x must be a whole number, got 2.0"),
        ("int", True, "x must be a whole number, got True"),
        ("int", None, "x must be a whole number, got None"),
        ("int", np.array([1, 2]), "x must be a whole number"),
        ("float", "4", "x must be a number, got '4'"),
        ("float", True, "x must be a number, got True"),
        ("float", None, "x must be a number, got None"),
        ("float", 10**400, "x is too large"),
    ],
)
def test_what_is_no_such_number_is_refused(kind, value, message):
    with pytest.raises(ValueError, match=message):
        as_annotated("x", kind, value)


def test_whole_numbers_of_any_type_make_equal_schemes_with_equal_specs():
    ours = jopeq.scheme("t", epsilon=2.0, size=3)
    theirs = jopeq.scheme("t", epsilon=2.0, size=np.int64(3))
    assert theirs == ours
    assert theirs.spec == ours.spec


def test_lattices_are_named_by_name_or_generator():
    assert to_json(jopeq.Lattice("E8")) == "E8"
    generator = ((1.0, 0.3), (0.0, 1.2))
    assert to_json(jopeq.Lattice(generator=generator)) == generator
    assert to_json(2.5) == 2.5
