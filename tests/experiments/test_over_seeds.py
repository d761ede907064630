import pytest

from jopeq.experiments.over_seeds import decibels, grouped, over_seeds


def test_values_become_mean_and_deviation():
    assert str(over_seeds([0.9, 0.92])) == "91.00 ± 1.41"
    assert str(over_seeds([0.9])) == "90.00"


def test_decibels_are_twenty_logs(mnist_run):
    assert decibels([mnist_run(snr=10.0), mnist_run(snr=10.0)]) == pytest.approx(20.0)
    assert decibels([mnist_run(snr=None)]) is None
    assert decibels([]) is None


def test_groups_keep_the_order_of_the_runs(mnist_run):
    runs = [mnist_run(label="b"), mnist_run(label="a"), mnist_run(label="b", seed=1)]
    groups = grouped(runs, lambda run: run.label)
    assert list(groups) == ["b", "a"]
    assert groups["b"] == [runs[0], runs[2]]
