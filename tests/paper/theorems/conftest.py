"""The theorems at a size of seconds, and as they are kept."""

from pathlib import Path

import pytest

KEPT = Path(__file__).parents[3] / "results" / "theory.json"


@pytest.fixture(scope="session")
def parts(tmp_path_factory):
    """The numbers of experiments that take seconds."""
    from paper.results import compute
    from paper.theorems.setting import Effort

    few = {"clients": 50, "trials": 3, "rounds": 16, "seeds": 1}
    quick = Effort(samples=1 << 14, map_epsilons=4, map_letters=(2, 4, 16), **few)
    return compute(tmp_path_factory.mktemp("theory") / "theory.json", quick)


@pytest.fixture
def kept():
    """The results that are committed."""
    from paper.results import read_theory

    return read_theory(KEPT)
