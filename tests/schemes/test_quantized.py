"""Dithered schemes: distortion against bytes, rates, lattices and impossible combinations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import jopeq
from jopeq.lattice.lattices import Lattice
from jopeq.random.streams import PrivateStream
from jopeq.schemes.quantized import SubtractiveDither

SEED, NOISE = bytes(range(50, 82)), bytes(range(150, 182))
T = {"nu": 12.0, "squared_scale": 0.75}
NAMES = ["sdq", "dq", "laplace+sdq", "t+sdq", "jopeq"]


def made(name: str, epsilon: float, **parameters: Any) -> Any:
    private = {} if name in ("sdq", "dq") else {"epsilon": epsilon}
    return jopeq.scheme(name, clip=1.0, **private, **parameters)


def squares(scheme: Any, count: int) -> np.ndarray:
    """Squared error per entry of ``count`` samples at x = 0, through the real bytes."""
    zeros = np.zeros((count, scheme.dimension), np.float32)
    payload = scheme.encode(zeros, seed=SEED, noise=PrivateStream.reproducible(NOISE))
    return np.square(scheme.decode(payload).astype(np.float64)).mean(axis=1)


def assert_distortion(scheme: Any, count: int, *, own_draws: int = 0) -> None:
    off = squares(scheme, count)
    variance = off.var() * (1 / count + (1 / own_draws if own_draws else 0.0))
    gap = abs(off.mean() - scheme.distortion)
    assert gap <= 5 * math.sqrt(variance) + 1e-5 * scheme.distortion, (off.mean(), gap)


@pytest.mark.parametrize(
    ("name", "epsilon"),
    [(n, e) for n in NAMES for e in (1.0, 2.0, 4.0) if e == 1.0 or n not in ("sdq", "dq")],
)
@pytest.mark.parametrize("rate", [1.0, 2.0, 4.0, 8.0])
def test_distortion_on_z_is_what_the_bytes_show(name: str, epsilon: float, rate: float) -> None:
    assert_distortion(made(name, epsilon, rate=rate), 40_000)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("lattice", "rate"), [("A2", 1.0), ("A2", 2.0), ("D4", 1.0), ("E8", 1.0)])
def test_distortion_on_lattices_is_what_the_bytes_show(
    name: str, lattice: str, rate: float
) -> None:
    parameters = T if name in ("t+sdq", "jopeq") else {}
    scheme = made(name, 3.0, rate=rate, lattice=lattice, **parameters)
    assert_distortion(scheme, 20_000, own_draws=131_072)


@pytest.mark.parametrize(
    ("name", "lattice"),
    [*(("sdq", n) for n in ("A2", "D4", "E8", ((1.0, 0.3), (0.0, 1.2)))), ("jopeq", "A2")],
    ids=str,
)
def test_distortion_counts_overload_where_no_noise_is_added(name: str, lattice: Any) -> None:
    """So few letters that they do not cover the cell around 0."""
    scheme = made(name, 4.0, rate=0.5, lattice=lattice, gamma=3.0)
    assert scheme.noise is None
    assert_distortion(scheme, 20_000, own_draws=131_072)
    assert scheme.distortion > scheme.cells.second_moment * 1.001


@pytest.mark.parametrize("name", ["sdq", "laplace+sdq", "t+sdq", "jopeq"])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
@pytest.mark.parametrize("lattice", ["Z", "A2"])
@pytest.mark.parametrize("rate", [1.0, 4.0])
def test_distortion_with_entropy_coding_is_noise_plus_cell(
    name: str, epsilon: float, lattice: str, rate: float
) -> None:
    parameters = T if name == "t+sdq" or (name == "jopeq" and lattice == "A2") else {}
    scheme = made(name, epsilon, rate=rate, lattice=lattice, coding="entropy", **parameters)
    noise = 0.0 if scheme.noise is None else scheme.noise.variance
    assert scheme.distortion == pytest.approx(noise + scheme.cells.second_moment)
    assert_distortion(scheme, 40_000)


@pytest.mark.parametrize("name", ["sdq", "laplace+sdq", "jopeq"])
@pytest.mark.parametrize("rate", [1.0, 2.0, 4.0, 8.0])
@pytest.mark.parametrize("lattice", ["Z", "A2", "E8"])
def test_entropy_coding_never_overloads(name: str, rate: float, lattice: str) -> None:
    scheme = made(name, 1.0, rate=rate, lattice=lattice, coding="entropy")
    update = 3 * np.random.default_rng(0).standard_normal(2000)
    _, counted = scheme.encode(update, statistics=True)
    assert counted.overloaded == 0


@pytest.mark.parametrize("rate", [1.0, 2.0, 4.0, 8.0])
def test_entropy_coding_saves_bits_on_gaussian_updates(rate: float) -> None:
    """Same cells, no overload, and fewer bits than the letters of a fixed rate take."""
    scheme = jopeq.scheme("sdq", rate=rate, coding="entropy")
    fixed = jopeq.scheme("sdq", rate=rate)
    assert scheme.cells == fixed.cells
    assert scheme.bits_per_entry < fixed.bits_per_entry == rate
    # a uniform dither makes the rate the entropy of a density: h(x + cell) − log2 Δ
    spread = 1 / 3
    lower = 0.5 * math.log2(2 * math.pi * math.e * spread**2) - math.log2(scheme.cells.step)
    assert scheme.bits_per_entry > lower - 0.01


@pytest.mark.parametrize("lattice", ["Z", "A2", "D4", "E8"])
def test_letters_are_as_many_as_the_rate_allows(lattice: str) -> None:
    scheme = jopeq.scheme("sdq", rate=1.5, lattice=lattice, gamma=2.0)
    assert scheme.codebook.letters == math.floor(2 ** (1.5 * scheme.dimension))
    assert scheme.codebook.gamma == pytest.approx(2.0)


def test_lattices_come_as_names_generators_or_lattices() -> None:
    assert SubtractiveDither(rate=2.0, lattice="A2").lattice == Lattice("A2")
    scaled = SubtractiveDither(rate=2.0, lattice=Lattice("A2", step=3.0))
    assert scaled.lattice == Lattice("A2")
    generator = [[1.0, 0.3], [0.0, 1.2]]
    for version in (generator, tuple(map(tuple, generator)), np.array(generator)):
        built = SubtractiveDither(rate=2.0, lattice=version)
        assert built.lattice == Lattice(generator=((1.0, 0.3), (0.0, 1.2)))
    one = jopeq.scheme("sdq", rate=2.0, lattice=np.array(generator))
    assert one == jopeq.scheme("sdq", rate=2.0, lattice=generator)
    assert one.spec == '["sdq",{"lattice":[[1.0,0.3],[0.0,1.2]],"rate":2.0}]'


@pytest.mark.parametrize("wrong", [None, 5, [1.0, 2.0], [[1.0], [2.0, 3.0]], [["a"]], {}])
def test_other_things_are_no_lattices(wrong: Any) -> None:
    with pytest.raises(ValueError, match="lattice must be a name or a 2×2 generator, got"):
        jopeq.scheme("sdq", rate=2.0, lattice=wrong)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, r"scheme 'sdq' needs rate \(bits per entry\)$"),
        ({"coding": "entropy"}, "needs rate .*, or step, for the size of the cells"),
        ({"rate": 2.0, "coding": "huffman"}, "coding must be 'fixed' or 'entropy', got 'huffman'"),
        ({"rate": 2.0, "lattice": "A3"}, "lattice must be one of Z, A2, D4, E8 or a 2×2 generator"),
        ({"rate": 2.0, "lattice": np.eye(3)}, r"finite 2×2 matrix, got shape \(3, 3\)"),
        ({"rate": 2.0, "lattice": [[1, 2], [2, 4]]}, "independent columns"),
        ({"step": 0.1}, "step needs coding='entropy'"),
        ({"step": 0.1, "rate": 2.0, "coding": "entropy"}, "give either step, or rate and gamma"),
        ({"step": 0.1, "gamma": 2.0, "coding": "entropy"}, "give either step, or rate and gamma"),
        ({"step": -0.1, "coding": "entropy"}, "step must be a positive number"),
        ({"rate": 0.5}, r"at least 1 bits per entry \(two letters\).*raise rate"),
        ({"rate": 0.1, "lattice": "E8"}, "rate must be at least 0.125 bits per entry"),
        ({"rate": 0.0}, "rate must be a positive number"),
        ({"rate": math.nan}, "rate must be a positive number"),
        ({"rate": 65.0}, "rate must be at most 64 bits per entry"),
        ({"rate": 33.0}, "letters must be 2…4294967296 on Z"),
        ({"rate": 4.0, "lattice": "E8"}, "lower rate, or use coding='entropy'"),
        ({"rate": 2.0, "gamma": 0.0}, "gamma must be a positive number"),
        ({"rate": 2.0, "gamma": math.inf}, "gamma must be a positive number"),
        ({"rate": 1.0, "gamma": 1e200, "lattice": "E8"}, r"gamma must be .* got 1e\+200"),
        ({"step": 1e-320, "coding": "entropy"}, "step must be a positive number, from 1e-38"),
        ({"rate": 0.125, "lattice": "E8"}, "too few to cover the unit ball.*raise rate or give"),
    ],
)
def test_impossible_combinations_name_the_remedy(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        jopeq.scheme("sdq", **parameters)
