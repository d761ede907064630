import math

import numpy as np


def test_dither_is_uniform_and_the_control_is_not(parts):
    part = parts["dither"]
    keys = ("p_joint", "p_input", "p_neighbour")
    for row in part["lattices"]:
        assert min(*row["p_coordinate"], *(row[key] for key in keys)) > 1e-7, row["lattice"]
        assert row["outside"] == 0
        assert abs(row["second_moment_sigmas"]) < 5
    assert part["control"]["p_input"] < 1e-12


def test_codebooks_overload_at_the_radius_that_the_theorem_allows(parts):
    for row in parts["dither"]["overload"]:
        share = dict(zip(row["radii"], row["overloaded"], strict=True))
        assert share[0.0] == 0
        assert share[1.0] > 0.3
        if row["lattice"] == "Z":  # (|x| + Δ/2 − γ)/Δ, Δ = γ/2
            expected = np.clip((np.array(row["radii"]) - 0.75) / 0.5, 0, 1)
            count = parts["dither"]["samples"] // 16
            assert np.abs(expected - row["overloaded"]).max() < 5 * 0.5 / math.sqrt(count)
