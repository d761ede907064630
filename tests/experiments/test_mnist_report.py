import math

import pytest

from jopeq.experiments.mnist_report import (
    decibels,
    fig2_markdown,
    over_seeds,
    save_fig2,
    save_fig3,
    table1_markdown,
)
from jopeq.experiments.runs import Run


def kept(**changes):
    values = {
        "label": "jopeq",
        "scheme": '["jopeq",{"epsilon":4.0,"rate":1.0}]',
        "model": "linear",
        "data": "mnist",
        "seed": 0,
        "rounds": 2,
        "test_accuracy": 0.9,
        "best_round": 2,
        "validation": [0.8, 0.9],
        "snr": 0.5,
        "bytes_per_client": 1000.0,
        "bits_per_parameter": 1.02,
        "overload_rate": 0.0,
        "nominal": 4.0,
        "epsilon": 10.119,
        "epsilon_client": 1e6,
        "settings": {},
    }
    return Run(**{**values, **changes})


def test_cells_are_mean_and_deviation():
    assert str(over_seeds([0.9, 0.92])) == "91.00 ± 1.41"
    assert str(over_seeds([0.9])) == "90.00 ± 0.00"


def test_decibels_are_twenty_logs():
    assert decibels([kept(snr=10.0), kept(snr=10.0)]) == pytest.approx(20.0)
    assert decibels([kept(snr=None)]) is None
    assert decibels([]) is None


def test_table1_sets_paper_code_and_ours_side_by_side():
    table = table1_markdown([kept(), kept(seed=1, test_accuracy=0.92), kept(model="cnn")])
    row = next(line for line in table.splitlines() if line.startswith("| `jopeq`"))
    assert "84 / 92.0 / **91.00 ± 1.41**" in row or "84 / 91.9 / **91.00 ± 1.41**" in row
    assert "79 / 98.5 / **90.00 ± 0.00**" in row
    assert "70 / 94.5 / **–**" in row  # the MLP was not run
    assert f"-9.5 / {20 * math.log10(0.5):.1f}" in row
    assert row.rstrip(" |").endswith("| 4 | 10.12")


def test_table1_says_none_where_nothing_holds():
    table = table1_markdown([kept(label="sdq", nominal=None, epsilon=None)])
    assert table.splitlines()[-1].rstrip(" |").endswith("– | none")


def test_figures_and_the_table_of_figure_2(tmp_path):
    runs = [
        kept(label=f"{name} ε={epsilon:g} R={rate:g}", snr=rate)
        for name in ("jopeq", "response")
        for epsilon in (3.0, 3.5, 4.0)
        for rate in (1.0, 2.0)
    ]
    table = fig2_markdown(runs)
    assert "| `jopeq` | 3.5 | 0.00 | 6.02 |" in table
    save_fig2(runs, tmp_path / "fig2.png")
    save_fig3([kept(), kept(seed=1), kept(label="none", snr=None)], tmp_path / "fig3.png")
    assert all((tmp_path / name).stat().st_size > 10_000 for name in ("fig2.png", "fig3.png"))
