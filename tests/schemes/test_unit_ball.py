import numpy as np
import pytest

import jopeq
from jopeq.schemes.ball import into_unit_ball, scaling_assumptions


def test_samples_are_moved_into_the_ball_along_their_ray() -> None:
    rows = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [-1e300, 0.0]])
    with np.errstate(over="ignore"):
        inside, moved = into_unit_ball(rows[:3])
    assert moved == 1
    np.testing.assert_allclose(inside, [[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]], rtol=1e-11)
    assert np.linalg.norm(inside, axis=1).max() <= 1.0
    scalar, moved = into_unit_ball(np.array([[2.0], [-3.0], [1.0], [0.5]]))
    assert scalar.ravel().tolist() == [1.0, -1.0, 1.0, 0.5]
    assert moved == 2


@pytest.mark.parametrize("dimension", [2, 4, 8])
def test_no_rounding_leaves_the_ball(dimension: int) -> None:
    rows = np.random.default_rng(1).standard_normal((50_000, dimension)) * 10
    inside, _ = into_unit_ball(rows)
    assert np.linalg.norm(inside, axis=1).max() <= 1.0


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"clip": 1.0}, []),
        ({}, ["the update's norm travels in the clear"]),
        ({"center": True}, ["the update's norm and mean travel in the clear"]),
        ({"per": "tensor"}, ["every tensor's norm travels in the clear"]),
        ({"clip": 1.0, "rotate": True}, ["a sample is one of the rotated update"]),
    ],
)
def test_what_the_scale_gives_away_is_said(parameters, words):
    found = scaling_assumptions(jopeq.scheme("laplace", epsilon=4.0, **parameters))
    assert len(found) == len(words)
    assert all(sentence.startswith(start) for sentence, start in zip(found, words, strict=True))
