"""From options to a scheme."""

import pytest
import typer

from jopeq import scheme
from jopeq.cli.options import build_scheme


def test_options_and_parameters_by_name_make_a_scheme():
    given = {"epsilon": 3.0, "rate": 2.0, "lattice": "A2", "law": "laplace"}
    built = build_scheme("jopeq", **given, gamma=None)  # those take the defaults
    assert built == scheme("jopeq", **given)
    assert build_scheme("response", ["levels=3", "clip=1.0"], epsilon=4.0, rate=2.0).levels == 3
    built = build_scheme("sphere", ["clip=1.0", "bits=6"], epsilon=4.0)
    assert (built.clip, built.bits) == (1.0, 6)
    for wrong, words in (("levels", "NAME=VALUE"), ("=3", "NAME=VALUE"), ("epsilon=3", "twice")):
        with pytest.raises(typer.BadParameter, match=words):
            build_scheme("response", [wrong], epsilon=4.0, rate=2.0)
