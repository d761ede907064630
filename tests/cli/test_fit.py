"""``jopeq fit``."""

import json

import numpy as np
import pytest

from jopeq.models import Fit


@pytest.fixture
def run(jopeq_command):
    return lambda *words: jopeq_command("fit", *words)


@pytest.fixture
def tables(tmp_path):
    """The options of four hospitals, 600 patients each."""
    rng, words = np.random.default_rng(5), []
    for hospital in range(4):
        age, sex = rng.integers(18, 100, 600), rng.choice(["F", "M"], 600)
        died = rng.random(600) < 1 / (1 + np.exp(4 - 0.06 * age))
        falls = rng.poisson(0.02 * age)
        lines = [f"{a},{s},{int(d)},{f}" for a, s, d, f in zip(age, sex, died, falls, strict=True)]
        path = tmp_path / f"hospital{hospital}.csv"
        path.write_text("\n".join(["age,sex,died,falls", *lines]) + "\n")
        words += ["--csv", path]
    return [*words, "--records", 2400, "--epsilon", 2]


def test_a_table_a_picture_and_a_file(run, tables, tmp_path):
    asked = ["--outcome", "died", "--number", "age 18 100", "--category", "sex F M"]
    written = ["--plot", tmp_path / "forest.svg", "--out", tmp_path / "fit.json"]
    done = run(*tables, *asked, *written)
    assert done.exit_code == 0, done.output
    assert "odds ratio" in done.stdout
    assert "ε = " in done.stdout
    fit = Fit.load(tmp_path / "fit.json")
    assert abs(fit["age"].value - 0.06) < 5 * fit["age"].error
    assert (tmp_path / "forest.svg").stat().st_size > 5000
    planned = run(*tables, *asked, "--plan")
    assert "verdict" in planned.stdout


def test_a_file_of_columns_and_other_models(run, tables, tmp_path):
    (tmp_path / "columns").write_text("number age 18 100 missing=true\n\ncategory sex F M\n")
    asked = ["--columns", tmp_path / "columns", "--json"]
    for words in (
        ["--model", "poisson", "--outcome", "falls", "--most", 8],
        ["--model", "linear", "--outcome", "falls", "--bounds", "0 8"],
        ["--model", "softmax", "--outcome", "died", "--classes", "0 1"],
        ["--outcome", "died", "--goal", "prediction", "--additive"],
    ):
        done = run(*tables, *asked, *words)
        assert done.exit_code == 0, done.output
        found = json.loads(done.stdout)
        assert found["epsilon"] <= 2.0
        assert np.isfinite(found["weights"]).all()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--outcome", "died"], "columns"),
        (["--outcome", "died", "--number", "age 100 18"], "lower"),
        (["--outcome", "dead", "--number", "age 18 100"], "'dead'"),
        (["--outcome", "died", "--number", "age 18 100", "--model", "cox"], "--model"),
        (["--outcome", "died", "--number", "age 18 100", "--most", "3"], "most"),
        (["--outcome", "died", "--number", "age 18 100", "--goal", "both"], "goal"),
        (["--outcome", "died", "--number", "sex 18 100"], "'sex'"),
        (["--outcome", "died", "--columns", "nowhere.txt"], "--columns"),
    ],
)
def test_wrong_words_print_no_fit(run, tables, words, told):
    done = run(*tables, *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert told in done.stderr
