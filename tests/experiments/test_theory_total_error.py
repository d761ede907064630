import pytest

from jopeq.experiments.theory_total_error import resolution


def test_payloads_have_the_computed_distances(parts):
    part = parts["total_error"]
    allowed = resolution(part["samples"])
    for row in part["checked"]:
        assert abs(row["measured"] - row["computed"]) < allowed, row
    for row in part["staircase"]:
        assert row["measured"] < allowed
        assert row["kolmogorov"] == pytest.approx(2**-17, rel=1e-3)
    assert all(row["kolmogorov"] > 1e-4 for row in (*part["line"], *part["plane"]))
