"""The theorems at a size of seconds, and as they are kept."""

from pathlib import Path

import pytest

KEPT = Path(__file__).parents[3] / "results" / "theory.json"


@pytest.fixture(scope="session")
def quick():
    """Sizes at which the experiments take seconds."""
    from paper.theorems.setting import Effort

    few = {"clients": 50, "trials": 3, "rounds": 16, "seeds": 1}
    return Effort(samples=1 << 14, map_epsilons=4, map_letters=(2, 4, 16), **few)


@pytest.fixture(scope="session")
def quick_theory(tmp_path_factory, quick):
    """The file of the experiments at that size, and what is in it."""
    from paper.results import compute

    path = tmp_path_factory.mktemp("theory") / "theory.json"
    return path, compute(path, quick)


@pytest.fixture
def kept():
    """The results that are committed."""
    from paper.results import read_theory

    return read_theory(KEPT)


@pytest.fixture
def parts(quick_theory):
    """Their numbers; of those that are kept, the claims hold."""
    return quick_theory[1]
