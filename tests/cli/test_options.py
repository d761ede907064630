"""From options to a scheme."""

import pytest
import typer

from jopeq import scheme
from jopeq.cli.options import build_any, read_values


def test_options_and_parameters_by_name_make_a_scheme():
    read = read_values(["lattice=A2", "law=laplace"], epsilon=3.0, rate=2.0, clip=None)
    assert build_any("jopeq", read) == scheme(
        "jopeq", epsilon=3.0, rate=2.0, lattice="A2", law="laplace"
    )
    assert read_values(["levels=3", "a=true", 'b="3"']) == {"levels": 3, "a": True, "b": "3"}
    for wrong, words in (("levels", "NAME=VALUE"), ("=3", "NAME=VALUE"), ("rate=3", "twice")):
        with pytest.raises(typer.BadParameter, match=words):
            read_values([wrong], rate=2.0)
