"""Colours that everybody can tell apart."""

from itertools import combinations

import numpy as np
import pytest

from jopeq.lab.pictures.colours import DARK, LOOKS, ORDERED, look_of
from jopeq.registry import SCHEMES

# Machado, Oliveira, Fernandes 2009, severity 1, on linear RGB
VISION = {
    "normal": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
               [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
               [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
               [0.004733, 0.691367, 0.303900]],
}  # fmt: skip
TO_XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750],
          [0.0193339, 0.1191920, 0.9503041]]  # fmt: skip


def linear(colour):
    values = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(light):
    xyz = TO_XYZ @ np.clip(light, 0, 1) / np.array([0.95047, 1.0, 1.08883])
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one, two):
    low, high = sorted(float(np.array(TO_XYZ[1]) @ linear(colour)) for colour in (one, two))
    return (high + 0.05) / (low + 0.05)


SCHEMES_ON = {name: {getattr(look, name) for look in LOOKS.values()} for name in ("colour", "dark")}


@pytest.mark.parametrize(
    ("colours", "count", "page", "least"),
    [
        (SCHEMES_ON["colour"], 8, "#ffffff", 2.5),
        (SCHEMES_ON["dark"], 8, "#14171c", 4.5),
        (ORDERED, 4, "#ffffff", 2.5),
        ([DARK[colour] for colour in ORDERED], 4, "#14171c", 4.5),
    ],
)
def test_colours_differ_for_every_kind_of_vision(colours, count, page, least):
    assert len(set(colours)) == count
    assert min(contrast(colour, page) for colour in colours) >= least
    for matrix in VISION.values():
        seen = [lab(np.array(matrix) @ linear(colour)) for colour in colours]
        assert min(np.linalg.norm(a - b) for a, b in combinations(seen, 2)) > 25


def test_every_scheme_has_a_look_of_its_own():
    assert set(LOOKS) == {*SCHEMES, "sum", "central"}
    assert len(set(LOOKS.values())) == len(LOOKS)
    assert all(look.shape for look in LOOKS.values())
    assert look_of("raw") == LOOKS["none"]
    with pytest.raises(ValueError, match="must begin with one of none, "):
        look_of("laplas, ε=4")
