import pytest

from jopeq.experiments.mnist import AUTHORS_CODE
from jopeq.experiments.mnist_words import (
    above_the_code,
    clamped_words,
    cnn_words,
    last_spread,
    mlp_words,
    used_words,
)


def rows(mnist_run, model, column, *points):
    """Three seeds of every row of the code, so many points above it, 0.1 points apart."""
    gaps = zip(AUTHORS_CODE.items(), points, strict=True)
    return [
        mnist_run(label=label, model=model, seed=seed, test_accuracy=theirs[column] + gap / 100)
        for (label, theirs), middle in gaps
        for seed, gap in enumerate((middle - 0.1, middle, middle + 0.1))
    ]


def text(words):
    return " ".join(words.split())


def test_the_mlp_is_better_by_what_was_measured(mnist_run):
    runs = rows(mnist_run, "mlp", 1, 2.0, 3.5, 2.5, 2.5, 2.5)
    assert above_the_code(runs, "mlp") == pytest.approx([2.0, 2.5, 2.5, 2.5, 3.5])
    assert text(mlp_words(runs)).startswith("- Our MLP is 2.0 to 3.5 points better than the code's")
    assert mlp_words(rows(mnist_run, "mlp", 1, -0.1, 3.5, 2.5, 2.5, 2.5)) == ""
    assert mlp_words([]) == ""


def test_the_cnn_is_worse_by_what_was_measured(mnist_run):
    words = text(cnn_words(rows(mnist_run, "cnn", 2, -0.1, -0.2, -0.05, -0.1, -0.1)))
    assert "in all 5 rows, by 0.05 to 0.20 points" in words
    assert "about 0.12 points (0.10 between our seeds)" in words  # 0.1·√(1 + 1/3)
    assert "no row stands out alone, but 5 of 5 on one side, 0.11 on average" in words
    words = text(cnn_words(rows(mnist_run, "cnn", 2, -0.1, -0.9, -0.05, -0.8, -0.1)))
    assert "so 2 of them stand out alone" in words
    assert cnn_words(rows(mnist_run, "cnn", 2, -0.1, 0.2, -0.05, -0.1, -0.1)) == ""
    assert cnn_words([mnist_run(model="cnn", test_accuracy=0.9)]) == ""  # one seed has no spread


def test_the_bits_of_figure_2_are_those_of_the_runs(mnist_run):
    def run(name, epsilon, rate, bits, coding="entropy"):
        return mnist_run(
            label=f"{name} ε={epsilon:g} R={rate:g}",
            scheme=f'["{name}",{{"coding":"{coding}"}}]',
            bits_per_parameter=bits,
        )

    runs = [run("staircase", 3.0, 1.0, 1.1, "fixed"), run("response", 3.0, 1.0, 1.1)]
    assert clamped_words(runs) == "; clamped to R bits at ε = 3, R = 1"
    runs += [run("staircase", 3.5, 8.0, 0.92), run("staircase", 4.0, 8.0, 1.71)]
    assert used_words(runs) == ""  # of response nothing is known at this rate
    runs.append(run("response", 4.0, 8.0, 5.13))
    words = "`staircase` stops using more than 0.9 to 1.7 bits, `response` more than 5.1 bits"
    assert used_words(runs) == f": {words}, headers included"
    assert clamped_words(runs[1:]) == ""
    assert used_words([]) == ""


def test_the_curves_end_as_far_apart_as_they_do(mnist_run):
    runs = [mnist_run(validation=[0.5, end]) for end in (0.8, 0.9)]
    runs.append(mnist_run(label="none", validation=[0.1, 0.87]))
    assert last_spread(runs) == pytest.approx(2.0)
