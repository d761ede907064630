"""Degree and threshold of the graph against SciPy's hypergeometric law, and its one property."""

import numpy as np
import pytest
from scipy.stats import hypergeom

from jopeq.secure.graph import COMPLETE_UP_TO, EXPOSURE, FAILURE, Graph, graph_for

SETTINGS = [(101, 68, 0), (200, 180, 10), (1000, 900, 0), (1000, 670, 50), (1000, 550, 0)]


def is_enough(n, threshold, colluding, k, t):
    """Both bounds of ``graph_for`` for this k and t."""
    m = t - k // 2 - 2
    colludes = hypergeom(n - 1, colluding, k).sf(m) if m >= 0 else 1.0
    lost = hypergeom(n - 1, threshold, k).cdf(t - 1)
    return n * colludes <= EXPOSURE and n * lost <= FAILURE


@pytest.mark.parametrize(("n", "threshold", "colluding"), SETTINGS)
def test_the_smallest_degree_within_both_bounds(n, threshold, colluding):
    k, t = graph_for(n, threshold, colluding)
    assert k < n - 1
    assert is_enough(n, threshold, colluding, k, t)
    assert not any(is_enough(n, threshold, colluding, k - 2, t) for t in range(k // 2, k))


def test_small_and_hard_cohorts_are_complete():
    assert graph_for(COMPLETE_UP_TO, 67, 0) == (COMPLETE_UP_TO - 1, 67)
    assert graph_for(200, 130, 50) == (199, 130)


def test_regular_symmetric_and_fixed_by_the_transcript():
    graph = Graph(200, 180, 10, b"a")
    k, _ = graph_for(200, 180, 10)
    holders = [set(graph.holders(at)) for at in range(200)]
    assert all(len(held) == k + 1 and at in held for at, held in enumerate(holders))
    assert all(at in holders[other] for at in range(200) for other in holders[at])
    assert holders == [set(Graph(200, 180, 10, b"a").holders(at)) for at in range(200)]
    assert holders != [set(Graph(200, 180, 10, b"b").holders(at)) for at in range(200)]


def test_whoever_chooses_the_dropouts_one_sum_can_be_opened_or_none():
    """The proof in ``graph_for``, against gaps that a server cuts into the circle."""
    graph, random = Graph(150, 120, 0, b"circle"), np.random.default_rng(1)
    k, t = graph_for(150, 120, 0)
    order, _ = graph.circle
    opened = 0
    for _ in range(300):
        alive = set(range(150))
        for _ in range(random.integers(1, 4)):  # arcs that are cut out, some as long as k/2
            start, length = random.integers(150), random.integers(1, k // 2 + 3)
            alive -= {order[(start + step) % 150] for step in range(length)}
        near = {at: alive.intersection(graph.holders(at)) for at in alive}
        closed = {at for at in alive if len(near[at]) < t}  # its self mask stays closed
        components, left = [], set(alive)
        while left:
            component, edge = set(), {left.pop()}
            while edge:
                component |= edge
                edge = set().union(*(near[at] for at in edge)) - component
            left -= component
            components.append(component)
        sums = [component for component in components if not component & closed]
        assert sums in ([], [alive])
        opened += bool(sums)
    assert 30 < opened < 300  # both happen
