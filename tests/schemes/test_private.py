"""What the private quantized schemes share: the noise's parameters and the ball."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import jopeq
from jopeq.noise import Laplace, MultivariateT
from jopeq.random.streams import PrivateStream

NAMES = ["laplace+sdq", "t+sdq", "jopeq"]


@pytest.mark.parametrize("name", NAMES)
def test_epsilon_is_kept_as_the_nominal_one(name: str) -> None:
    guarantee = jopeq.scheme(name, epsilon=3.0, rate=4.0).guarantee
    assert guarantee.nominal == 3.0
    assert guarantee.adversary == "server"
    assert guarantee.unit == "sample"


@pytest.mark.parametrize("name", NAMES)
def test_the_norm_in_the_clear_is_admitted(name: str) -> None:
    assert "norm travels in the clear" in str(jopeq.scheme(name, epsilon=2.0, rate=4.0).guarantee)
    centered = jopeq.scheme(name, epsilon=2.0, rate=4.0, center=True)
    assert "norm and mean travel in the clear" in str(centered.guarantee)
    clipped = jopeq.scheme(name, epsilon=2.0, rate=4.0, clip=1.0)
    assert "in the clear" not in str(clipped.guarantee)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lattice", ["Z", "A2", "E8"])
def test_samples_beyond_the_ball_count_as_its_edge(name: str, lattice: str) -> None:
    """The guarantee rests on it: what is far must not show."""
    scheme = jopeq.scheme(name, epsilon=2.0, rate=1.0, lattice=lattice, clip=1.0)
    direction = np.ones(scheme.dimension) / math.sqrt(scheme.dimension)
    arguments: dict[str, Any] = {
        "seed": bytes(32),
        "noise": PrivateStream.reproducible(bytes(32)),
        "statistics": True,
    }
    far, far_counted = scheme.encode(np.tile(50 * direction, 40), **arguments)
    near, near_counted = scheme.encode(np.tile(1.0000001 * direction, 40), **arguments)
    assert far == near
    assert far_counted.clipped == near_counted.clipped == 40
    inside, counted = scheme.encode(np.tile(0.99 * direction, 40), **arguments)
    assert counted.clipped == 0
    assert len(inside) == len(far)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lattice", ["Z", "A2"])
def test_support_is_the_papers_unless_given(name: str, lattice: str) -> None:
    scheme = jopeq.scheme(name, epsilon=4.0, rate=2.0, lattice=lattice)
    assert scheme.codebook.gamma == pytest.approx(scheme.target.gamma(2.0))
    given = jopeq.scheme(name, epsilon=4.0, rate=2.0, lattice=lattice, gamma=1.5)
    assert given.codebook.gamma == pytest.approx(1.5)


@pytest.mark.parametrize("name", ["t+sdq", "jopeq"])
def test_t_parameters_reach_the_law(name: str) -> None:
    scheme = jopeq.scheme(name, epsilon=3.0, rate=4.0, lattice="A2", nu=12.0, squared_scale=0.75)
    assert scheme.target.noise == MultivariateT(12.0, 0.75, 2)
    assert scheme.spec.count("nu") == 1


def test_laplace_on_a_lattice_is_laplace_in_every_entry() -> None:
    scheme = jopeq.scheme("laplace+sdq", epsilon=3.0, rate=2.0, lattice="A2")
    assert scheme.noise == Laplace(2 * math.sqrt(2) / 3, 2)


def finest(name: str, lattice: Any, **parameters: Any) -> float:
    """The least step that is not refused, found from the error."""
    fine = {"epsilon": 4.0, "coding": "entropy", "lattice": lattice, "clip": 1.0, **parameters}
    with pytest.raises(ValueError, match="raise step") as refused:
        jopeq.scheme(name, step=1e-20, **fine)
    least = float(str(refused.value).split("at least ")[1].split(" ")[0])
    with pytest.raises(ValueError, match="step must be at least"):
        jopeq.scheme(name, step=0.98 * least, **fine)
    return 1.02 * least


@pytest.mark.parametrize("dither", [-0.4999, 0.3])
def test_the_finest_cells_keep_to_the_printed_epsilon(dither: float, log_chances: Any) -> None:
    """P(q|x) counted exactly, draw by draw; steps of 2⁻⁴⁵ exceeded ε, those of 2⁻⁵³ ruled x out."""
    step = finest("laplace+sdq", "Z")
    scheme = jopeq.scheme("laplace+sdq", epsilon=4.0, step=step, coding="entropy", clip=1.0)
    law, cells = scheme.noise, scheme.cells
    limit = law.reach - 1.0

    def output_of(x: float) -> Any:
        def outputs(draws: np.ndarray) -> np.ndarray:
            noisy = np.clip(x + law.scale * draws, -limit, limit) + dither * step
            return cells.nearest(noisy[:, None])[:, 0]

        return outputs

    for outputs in (np.linspace(2.1, 2.2, 40), np.linspace(20.0, 22.0, 40)):
        cell = np.rint(outputs / step).astype(np.int64)
        ratio = log_chances(output_of(1.0), cell) - log_chances(output_of(-1.0), cell)
        assert ratio.max() * (1 + 1e-9) > 4.0
        assert ratio.max() <= scheme.guarantee.epsilon * (1 + 1e-5)


class Constant(PrivateStream):
    """One word everywhere: the smallest and the largest draws of every sampler."""

    def __init__(self, word: int) -> None:
        super().__init__()
        self._word = word

    __slots__ = ("_word",)

    def words64(self, *, lane: int, start: int, count: int) -> np.ndarray:
        is_late = lane & 0xFFFF > 3  # rejection goes on until the stream is random
        if is_late:
            return super().words64(lane=lane, start=start, count=count)
        return np.full(count, self._word, dtype=np.uint64)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("laplace+sdq", {}),
        ("laplace+sdq", {"epsilon": 60.0}),
        ("t+sdq", {}),
        ("t+sdq", {"epsilon": 80.0, "nu": 2.05}),
        ("t+sdq", {"epsilon": 200.0, "nu": 2.05}),
        ("l2+sdq", {}),
        ("gaussian+sdq", {}),
        ("jopeq", {}),
    ],
)
@pytest.mark.parametrize("lattice", ["Z", "A2", "D4", "E8", ((1.0, 0.3), (0.0, 1.2))], ids=str)
def test_no_noise_makes_an_update_be_refused(
    name: str, parameters: dict[str, Any], lattice: Any
) -> None:
    """Whether something is sent must not depend on update or noise, at the finest step either."""
    step = finest(name, lattice, **parameters)
    built = {"epsilon": 4.0, "coding": "entropy", "clip": 1.0, "lattice": lattice} | parameters
    scheme = jopeq.scheme(name, step=step, **built)
    for word in (0, (1 << 63) - 1, 1 << 63, (1 << 64) - 1):
        for value in (-1e30, 0.0, 1.0):
            payload = scheme.encode(np.full(scheme.dimension, value), noise=Constant(word))
            assert np.isfinite(scheme.decode(payload)).all()


def test_a_rate_that_makes_cells_too_fine_is_refused() -> None:
    with pytest.raises(ValueError, match=r"step must be at least .* lower rate or raise gamma"):
        jopeq.scheme("laplace+sdq", epsilon=4.0, rate=32.0)
    jopeq.scheme("laplace+sdq", epsilon=4.0, rate=30.0)
    jopeq.scheme("sdq", rate=32.0)  # nothing is hidden there


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("laplace+sdq", {"nu": 5.0}, "nu and squared_scale belong to law='t'"),
        ("jopeq", {"nu": 5.0}, "nu and squared_scale belong to law='t'"),
        ("jopeq", {"law": "cauchy"}, "law must be one of laplace, t"),
        ("t+sdq", {"squared_scale": 1.0}, "squared_scale needs nu"),
        ("t+sdq", {"nu": 1.0}, "nu must be above 2"),
        ("t+sdq", {"nu": 1.0, "gamma": 2.0}, "nu must be above 2"),
        (
            "jopeq",
            {"law": "t", "nu": 1.0, "rate": None, "step": 0.1, "coding": "entropy"},
            "nu must be above 2",
        ),
        ("jopeq", {"epsilon": -1.0}, "epsilon must be a positive finite number"),
        ("jopeq", {"epsilon": "4"}, "epsilon must be a number"),
    ],
)
def test_impossible_noise_is_refused_at_construction(
    name: str, parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        jopeq.scheme(name, **({"epsilon": 3.0, "rate": 2.0} | parameters))
