import numpy as np
import pytest

from jopeq.experiments.theory_convergence import CLIPPED


def test_convergence_stays_below_the_bound(parts):
    for row in parts["convergence"]["rows"]:
        if row["scheme"] == CLIPPED:
            continue
        for form in ("printed", "corrected"):
            assert (np.array(row["highest"]) < row[form]).all()


def test_the_rate_and_its_exceptions(kept_theory):
    part = kept_theory["convergence"]
    for row in part["rows"]:
        if row["scheme"] == CLIPPED:
            assert row["slope"] > 0.5
        else:
            # one run's slope scatters by 0.3, the mean of four by half of that or less
            assert row["slope"] == pytest.approx(-1, abs=0.5)
    start = part["from_optimum"]
    lowest, printed = np.array(start["lowest"]), np.array(start["printed"])
    assert (lowest > printed).all()
    assert (np.array(start["highest"]) < start["corrected"]).all()
