"""From options to a scheme."""

import pytest
import typer

from jopeq import scheme
from jopeq.cli.options import build_scheme


def test_options_are_passed_on_and_those_left_out_take_the_schemes_defaults():
    given = {"epsilon": 3.0, "rate": 2.0, "lattice": "A2", "law": "l2"}
    built = build_scheme("jopeq", **given, gamma=None, coding=None)
    assert built == scheme("jopeq", **given)


def test_any_parameter_can_be_given_by_name():
    built = build_scheme("staircase", ["moves=3", "lattice=Z"], epsilon=4.0)
    assert built.moves == 3
    built = build_scheme("sphere", ["clip=1.0", "bits=6"], epsilon=4.0)
    assert (built.clip, built.bits) == (1.0, 6)


@pytest.mark.parametrize(
    ("others", "message"),
    [(["moves"], "NAME=VALUE"), (["=3"], "NAME=VALUE"), (["epsilon=3"], "given twice")],
)
def test_parameters_by_name_are_checked(others, message):
    with pytest.raises(typer.BadParameter, match=message):
        build_scheme("staircase", others, epsilon=4.0)
