"""The peers of ``sphere`` are those of their papers; docs/people.md has the kept numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("matplotlib")

COUNT = 400


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_peers_have_the_error_of_their_closed_form(place, epsilon, load):
    peer = load("people_peers").peers(epsilon)[place]
    rng = np.random.default_rng(place)
    x = rng.normal(size=300)
    x /= np.linalg.norm(x)
    drawn = [peer.report(x, rng) for _ in range(COUNT)]
    errors, lengths = [float(np.sum((one - x) ** 2)) for one in drawn], [one @ x for one in drawn]
    for values, expected in ((errors, peer.error(len(x))), (lengths, 1.0)):
        slack = 0.005 * expected  # of FastProjUnit, which is a little short
        sigma = float(np.std(values)) / math.sqrt(COUNT)
        assert abs(float(np.mean(values)) - expected) < 5.0 * sigma + slack
