import math

from jopeq.experiments.mnist import ROUNDS
from jopeq.experiments.mnist_report import (
    fig2_markdown,
    fig3_runs,
    save_fig2,
    save_fig3,
    table1_markdown,
)


def test_table1_sets_paper_code_and_ours_side_by_side(mnist_run):
    table = table1_markdown(
        [mnist_run(), mnist_run(seed=1, test_accuracy=0.92), mnist_run(model="cnn")]
    )
    row = next(line for line in table.splitlines() if line.startswith("| `jopeq`"))
    assert "84 / 92.0 / **91.00 ± 1.41**" in row or "84 / 91.9 / **91.00 ± 1.41**" in row
    assert "79 / 98.5 / **90.00**" in row
    assert "70 / 94.5 / **–**" in row  # the MLP was not run
    assert f"-9.5 / {20 * math.log10(0.5):.1f}" in row
    assert row.rstrip(" |").endswith("| 4 | 10.12")


def test_table1_says_none_where_nothing_holds(mnist_run):
    table = table1_markdown([mnist_run(label="sdq", nominal=None, epsilon=None)])
    assert table.splitlines()[-1].rstrip(" |").endswith("– | none")


def test_figures_and_the_table_of_figure_2(mnist_run, tmp_path):
    runs = [
        mnist_run(label=f"{name} ε={epsilon:g} R={rate:g}", snr=rate)
        for name in ("jopeq", "response")
        for epsilon in (3.0, 3.5, 4.0)
        for rate in (1.0, 2.0)
    ]
    table = fig2_markdown(runs)
    assert "| `jopeq` | 3.5 | 0.00 | 6.02 |" in table
    save_fig2(runs, tmp_path / "fig2.png")
    save_fig3(
        [mnist_run(), mnist_run(seed=1), mnist_run(label="none", snr=None)], tmp_path / "fig3.png"
    )
    assert all((tmp_path / name).stat().st_size > 10_000 for name in ("fig2.png", "fig3.png"))


def test_figure_3_shows_whole_linear_runs_once(mnist_run):
    whole = mnist_run(rounds=ROUNDS)
    others = [mnist_run(), mnist_run(rounds=ROUNDS, model="cnn")]
    others.append(mnist_run(rounds=ROUNDS, label="x"))
    assert fig3_runs([whole, *others]) == fig3_runs([*others, whole, whole]) == [whole]
