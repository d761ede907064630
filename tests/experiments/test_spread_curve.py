import numpy as np

from jopeq.experiments.spread_curve import save_spread_curves, spread_curves


def test_minimum_is_below_the_curve_and_moves_out_with_clients():
    curves = spread_curves(clients=(1, 10, 100))
    for curve in curves:
        assert curve.least <= min(curve.errors) * (1 + 1e-6)
    assert np.all(np.diff([curve.best for curve in curves]) > 0)


def test_figures_of_the_design():
    one, ten = spread_curves(clients=(1, 10), spreads=(1.5, 2.0, 3.0))
    assert np.round(one.errors, 2).tolist() == [0.3, 0.43, 0.86]
    assert np.round(ten.errors, 3).tolist()[1:] == [0.053, 0.086]


def test_figure_is_saved(tmp_path):
    path = tmp_path / "spread.png"
    save_spread_curves(path, spread_curves(clients=(1,), spreads=(1.0, 2.0)))
    assert path.stat().st_size > 10_000
