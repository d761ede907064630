import math

import pytest

from jopeq.experiments.cifar import AUTHORS_CODE, COLUMNS, as_in_the_code, schemes_at
from jopeq.experiments.cifar_report import (
    authors_markdown,
    conventions_markdown,
    largest_gap,
    save_table2,
    shown,
    table2_markdown,
    verdict,
)
from jopeq.experiments.snr_conventions import Conventions

LAST = schemes_at(*COLUMNS[-1])


def row_of(table, start):
    return next(line for line in table.splitlines() if line.startswith(start))


def test_a_row_sets_paper_and_ours_side_by_side(cifar_run):
    runs = [cifar_run(), cifar_run(seed=1, test_accuracy=0.68)]
    row = row_of(table2_markdown(runs), "| `jopeq`, published")
    assert "| 70 / **67.00 ± 1.41** |" in row
    assert f"| -14.91 / {20 * math.log10(0.15):.2f} ± 0.00 |" in row
    assert row.endswith("| 1.01 | 3 | 8.72 a pair |")


def test_snrs_have_their_spread_over_seeds(cifar_run):
    runs = [cifar_run(snr=0.1), cifar_run(seed=1, snr=0.2)]
    spread = 20 * math.log10(2) / math.sqrt(2)
    wanted = f"/ {20 * math.log10(0.15):.2f} ± {spread:.2f} |"
    assert wanted in row_of(table2_markdown(runs), "| `jopeq`, published")


def test_the_papers_numbers_stand_beside_the_published_parameters_only(cifar_run):
    table = table2_markdown(
        [cifar_run("jopeq"), cifar_run("sdq, authors' points"), cifar_run("sdq")]
    )
    assert "| – / **66.00** |" in row_of(table, "| `jopeq` |")
    assert "| – / **66.00** |" in row_of(table, "| `sdq`, authors' points")
    assert "| 72 / **66.00** |" in row_of(table, "| `sdq` |")


def test_runs_show_in_every_column_they_belong_to(cifar_run):
    table = table2_markdown([cifar_run("none", snr=None, nominal=None, epsilon=None)])
    rows = [line for line in table.splitlines() if line.startswith("| `none`")]
    assert len(rows) == len(COLUMNS)
    assert all("| ∞ / ∞ |" in row and row.endswith("| – | none |") for row in rows)


def test_missing_seeds_and_divergence_are_said(cifar_run):
    runs = [cifar_run(), cifar_run(seed=1), cifar_run("t+sdq", diverged="not finite in round 3")]
    row = row_of(table2_markdown(runs), "| `t+sdq` |")
    assert "**66.00 (1 of 2 seeds), 1 diverged**" in row


def test_the_best_rate_is_chosen_by_validation_of_one_seed(cifar_run):
    other = cifar_run(lr=0.03, validation=[0.5, 0.6, 0.8], test=[0.1, 0.2, 0.6])
    row = row_of(table2_markdown([cifar_run(), cifar_run(seed=1), other]), "| `jopeq`, published")
    assert "| 0.03: 66.00 (1 of 2 seeds) |" in row
    assert "**66.00 ± 0.00**" in row  # the column of lr 0.1 is left alone
    assert "| – |" in row_of(table2_markdown([cifar_run()]), "| `jopeq`, published")


def test_beside_the_authors_code(cifar_run):
    code = "jopeq, published, as the code quantizes"
    coder = as_in_the_code(LAST["jopeq, published"])
    runs = [
        cifar_run("none", test=[0.5, 0.6, 0.71], rounds=95),
        cifar_run(rounds=75),
        cifar_run(code, coder, test=[0.1, 0.2, 0.6], rounds=75),
    ]
    table = authors_markdown(runs)
    assert "| 85 | 69.9 / **71.00** |" in row_of(table, "| `none`")
    assert "| 75 | 65.6 / **60.00** |" in row_of(table, "| `jopeq`, published, as")
    text = verdict(runs)
    assert "At least as accurate as the code: `none`; `jopeq`, published." in text
    assert "Below the code: `jopeq`, published, as the code quantizes (-5.6 points)." in text
    lower = [cifar_run(rounds=75, test=[0.1, 0.2, 0.6])]
    assert verdict(lower) == (
        "Below the code: `jopeq`, published (-5.6 points), which has 4 points where the code has 9."
    )
    assert verdict([cifar_run("sdq", rounds=95), cifar_run(rounds=74)]) == ""
    assert AUTHORS_CODE["jopeq"][0] == 75


def test_only_the_commonest_number_of_rounds_is_shown(cifar_run):
    runs = [cifar_run(), cifar_run(seed=1), cifar_run(seed=2, rounds=5)]
    assert shown(runs) == runs[:2]
    others = [cifar_run(lr=0.03, rounds=5), cifar_run(lr=0.2, rounds=5)]
    assert shown([*runs, *others]) == [*runs[:2], *others]
    assert shown([*runs, *others, cifar_run(lr=0.03, rounds=9)])[2].rounds == 9
    assert shown(runs[1:]) == runs[2:]  # as many of either: the longer ones
    assert shown([]) == []


def test_rates_are_compared_after_as_many_rounds(cifar_run):
    longer = cifar_run(rounds=4, validation=[0.5, 0.6, 0.7, 0.9], test=[0.51, 0.61, 0.64, 0.8])
    other = cifar_run(lr=0.03, validation=[0.5, 0.6, 0.65], test=[0.5, 0.5, 0.6])
    row = row_of(table2_markdown([longer, other]), "| `jopeq`, published")
    assert "| 0.1 |" in row
    better = cifar_run(lr=0.03, validation=[0.5, 0.6, 0.75], test_accuracy=0.65)
    row = row_of(table2_markdown([longer, better]), "| `jopeq`, published")
    assert "| 0.03: 65.00, 3 rounds |" in row


def test_snr_table():
    row = Conventions("sdq", 1.0, 3.0, -5.34, -5.3, -6.0, -6.0, -2.0, -14.9)
    table = conventions_markdown([row])
    assert table.endswith("| `sdq` | 1 | 3 | -5.34 | -5.30 | -6.00 | -6.00 | -2.00 | -14.90 |")
    assert largest_gap([row]) == pytest.approx(0.04)


def test_curves_of_unequal_length_are_drawn(cifar_run, tmp_path):
    runs = [cifar_run(), cifar_run(seed=1, validation=[0.5, 0.6]), cifar_run("response")]
    save_table2(runs, tmp_path / "table2.png")
    assert (tmp_path / "table2.png").stat().st_size > 10_000
