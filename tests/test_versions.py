import platform
from importlib.metadata import version

import numpy as np
import pytest

import jopeq
from jopeq.versions import NAMES, versions


def test_jopeq_and_python_come_first_whatever_is_asked():
    own = {"jopeq": jopeq.__version__, "Python": platform.python_version()}
    assert versions() == own
    found = versions("pytest", "numpy")
    assert list(found) == ["jopeq", "Python", "pytest", "numpy"]
    assert found == {**own, "pytest": version("pytest"), "numpy": np.__version__}


def test_what_is_not_installed_is_left_out():
    assert versions("jopeq-of-another-planet", "numpy") == versions("numpy")


def test_names_are_those_that_can_be_found():
    """A name that is misspelt would never be shown."""
    pytest.importorskip("torch")
    assert tuple(versions(*NAMES[2:])) == NAMES
