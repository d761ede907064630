import pytest

from jopeq.experiments.cifar import COLUMNS, schemes_at
from jopeq.experiments.cifar_rates import (
    accuracy_after,
    best_rate,
    calibration_verdict,
    last_changes,
    rates_verdict,
    rising,
    whole_rates,
)


def test_accuracy_is_of_the_best_validation_round_so_far(cifar_run):
    run = cifar_run(validation=[0.5, 0.7, 0.6], test=[0.1, 0.2, 0.3])
    assert [accuracy_after(run, rounds) for rounds in (1, 2, 3, 99)] == [0.1, 0.2, 0.2, 0.2]
    untested = cifar_run(test=None)
    assert accuracy_after(untested, 3) == untested.test_accuracy
    with pytest.raises(ValueError, match="not tested"):
        accuracy_after(untested, 2)


def test_every_rate_is_compared_with_the_papers_by_validation(cifar_run):
    runs = [
        cifar_run(),
        cifar_run(seed=1, validation=[0.9, 0.9, 0.9]),
        cifar_run(lr=0.03, validation=[0.5, 0.6, 0.8], test=[0.1, 0.2, 0.6]),
        cifar_run(lr=0.2, validation=[0.1, 0.1, 0.1], diverged="not finite in round 3"),
        cifar_run("sdq"),
        cifar_run("sdq", lr=0.2, validation=[0.1, 0.1, 0.1], test=[0.9] * 3),
    ]
    assert rates_verdict(runs) == (
        "Beside lr 0.1: 0.03 is better in 1 of 1 schemes (test accuracy -6.0 to -6.0 points); "
        "0.2 is better in 0 of 2 schemes, and 1 diverged."
    )
    assert rates_verdict(runs[:2]) == ""
    short = cifar_run(lr=0.2, rounds=2, validation=[0.1, 0.1], test=[0.1, 0.1])
    assert "0.2 (2 rounds, 1 seed) is better in 0 of 1 schemes" in rates_verdict([*runs[:2], short])


def test_how_much_each_rows_accuracy_still_changes(cifar_run):
    runs = [
        cifar_run(rounds=5, validation=[0.1, 0.5, 0.6, 0.7, 0.8]),
        cifar_run(rounds=4, seed=1, validation=[0.5, 0.6, 0.6, 0.6]),
        cifar_run("sdq", rounds=4, validation=[0.5, 0.5, 0.4, 0.4]),
        cifar_run(rounds=9, seed=2, validation=[0.1, 0.1, 0.2, 0.2]),  # it diverged
        cifar_run(rounds=4, lr=0.2, validation=[0.9, 0.9, 0.0, 0.0]),
        cifar_run("none", rounds=3),  # too short to tell
    ]
    assert last_changes(runs, 0.1, 2) == pytest.approx([-10.0, 100 * (0.2 + 0.05) / 2])
    assert last_changes(runs[3:], 0.1, 2) == []
    assert last_changes(runs, 0.2, 2) == pytest.approx([-90.0])


def test_the_best_rate_is_that_of_all_shared_seeds(cifar_run):
    first, second = cifar_run(validation=[0.5, 0.6, 0.7]), cifar_run(seed=1, validation=[0.7] * 3)
    lower = cifar_run(lr=0.03, validation=[0.5, 0.6, 0.72])
    assert best_rate([first, second, lower]) == 0.03  # one seed is shared
    assert (
        best_rate([first, second, lower, cifar_run(lr=0.03, seed=1, validation=[0.6] * 3)]) == 0.1
    )
    assert best_rate([first, second, cifar_run(lr=0.03, seed=2)]) is None
    assert best_rate([lower]) is None


def test_what_the_true_calibration_costs(cifar_run):
    runs = []
    for column in COLUMNS:
        rows = schemes_at(*column)
        for label, accuracies in (("jopeq, published", (0.7, 0.75)), ("jopeq", (0.6, 0.73))):
            for lr, accuracy in zip((0.1, 0.03), accuracies, strict=True):
                validation = [0.1, 0.2, accuracy]
                for seed, above in enumerate((0.0, 0.01)):
                    runs.append(
                        cifar_run(
                            label,
                            rows[label],
                            lr=lr,
                            seed=seed,
                            validation=validation,
                            test_accuracy=accuracy + above,
                        )
                    )
    assert "−10.0, −10.0 and −10.0 points in the three columns at lr 0.1" in calibration_verdict(
        runs
    )
    assert "−2.0, −2.0 and −2.0 at the best lr of each." in calibration_verdict(runs)
    assert calibration_verdict(runs[4:]) == ""


def test_the_end_of_every_rate_of_as_many_rounds(cifar_run):
    paper = cifar_run(rounds=20, validation=[0.5] * 10 + [0.6] * 10)
    lower = cifar_run(rounds=20, lr=0.03, validation=[0.5] * 10 + [0.7] * 10)
    short = cifar_run(rounds=3, lr=0.2)
    assert whole_rates([lower, short, paper]) == [0.1, 0.03]
    assert rising([paper, lower, short]) == (
        "+10.0 points in the median row at lr 0.1 (+10.0 to +10.0 in all rows), "
        "+20.0 points in the median row at lr 0.03 (+20.0 to +20.0 in all rows)"
    )
    assert rising([cifar_run(), short]) == ""
