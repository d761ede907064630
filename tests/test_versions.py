import platform
from importlib.metadata import version

import pytest

import jopeq
from jopeq.versions import NAMES, versions


def test_jopeq_and_python_come_first_and_what_is_not_installed_is_left_out():
    own = {"jopeq": jopeq.__version__, "Python": platform.python_version()}
    assert versions() == own
    found = versions("pytest", "jopeq-of-another-planet", "numpy")
    assert list(found) == ["jopeq", "Python", "pytest", "numpy"]
    assert found == {**own, "pytest": version("pytest"), "numpy": version("numpy")}
    pytest.importorskip("torch")
    assert tuple(versions(*NAMES[2:])) == NAMES  # a name that is misspelt would never be shown
