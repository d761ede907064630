"""``jopeq stats``, ``jopeq fit`` and ``jopeq evaluate`` on CSV files."""

import json

import numpy as np
import pytest

from jopeq.models import Fit


@pytest.fixture
def tables(tmp_path):
    """The options of five hospitals, 600 patients each, some without an age."""
    rng, words = np.random.default_rng(5), []
    for hospital in range(5):
        age, sex = rng.integers(18, 100, 600), rng.choice(["F", "M"], 600)
        died = rng.random(600) < 1 / (1 + np.exp(4 - 0.06 * age))
        months = rng.exponential(20, 600)
        columns = [age, sex, died * 1, rng.poisson(0.02 * age), months.round(1), months < 40]
        lines = [",".join(map(str, row)) for row in zip(*columns, strict=True)]
        path = tmp_path / f"hospital{hospital}.csv"
        head = ["age,sex,died,falls,months,event", ",F,1,0,3.0,True", "NA,M,,,,"]
        path.write_text("\n".join([*head, *lines]) + "\n")
        words += ["--csv", path]
    return words


@pytest.fixture
def run(jopeq_command, tables):
    return lambda command, *words: jopeq_command(command, *words, *tables, "--epsilon", 4)


def succeed(done):
    assert done.exit_code == 0, done.output
    return done.stdout


def test_statistics_as_a_table_a_picture_and_json(run, tmp_path):
    asked = ["age: mean 0 120", "age: quartiles 0 120", "sex: proportions F M"]
    asked += ["months: survival event 0 40 bins=8 by=sex:F,M", "age: histogram 0 120 bins=6"]
    words = ["stats", *(word for one in asked for word in ("--ask", one))]
    shown = succeed(run(*words, "--plot", tmp_path / "answers.svg"))
    for part in ("[20, 40)", "log-rank test", "ε = "):
        assert part in shown
    assert (tmp_path / "answers.svg").stat().st_size > 10_000
    found = json.loads(succeed(run(*words, "--json")))
    assert abs(found["age"]["mean"]["value"] - 58.5) < 6 * found["age"]["mean"]["error"] + 2
    assert list(found["age"]["quartiles"]["value"]) == ["25%", "50%", "75%"]
    assert sum(found["sex"]["proportions"]["value"].values()) == pytest.approx(1.0)
    curve = found["months"]["survival by sex"]["curves"][0]
    assert abs(curve["survival"][4] - np.exp(-1)) < 6 * curve["error"][4]


FIT = ("fit", "--records", 3010)
DIED = (*FIT, "--outcome", "died", "--number", "age 18 100")


def test_a_fit_as_a_table_a_picture_and_a_file_and_its_evaluation(run, tmp_path):
    model, asked = tmp_path / "fit.json", [*DIED, "--category", "sex F M"]
    shown = succeed(run(*asked, "--plot", tmp_path / "forest.svg", "--out", model))
    assert "odds ratio" in shown
    assert (tmp_path / "forest.svg").stat().st_size > 5000
    fit = Fit.load(model)
    assert abs(fit["age"].value - 0.06) < 5 * fit["age"].error
    assert "verdict" in succeed(run(*asked, "--plan"))
    words = ["evaluate", model, "--records", 3010]
    shown = succeed(run(*words, "--by", "sex F M", "--plot", tmp_path / "roc.svg"))
    assert shown.count("AUC") == 3
    assert (tmp_path / "roc.svg").stat().st_size > 5000
    assert json.loads(succeed(run(*words, "--json")))["figures"]["AUC"]["value"] > 0.7
    refused = run(*words, "--cut", 2)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "threshold" in refused.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["--model", "poisson", "--outcome", "falls", "-p", "most=8"],
        ["--model", "linear", "--outcome", "falls", "-p", "bounds=[0,8]"],
        ["--model", "softmax", "--outcome", "died", "-p", "classes=[0,1]"],
        ["--model", "hazard", "--outcome", "months", "-p", "event=event", "-p", "cuts=[0,10,40]"],
        ["--outcome", "died", "-p", "goal=prediction", "-p", "additive=true"],
    ],
)
def test_a_file_of_columns_and_other_models(run, tmp_path, words):
    (tmp_path / "columns").write_text("number age 18 100 missing=true\n\ncategory sex F M\n")
    found = json.loads(succeed(run(*FIT, "--columns", tmp_path / "columns", "--json", *words)))
    assert found["epsilon"] <= 4.0
    assert np.isfinite(found["weights"]).all()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["stats", "--ask", "age: mean 120 0"], "lower and upper"),
        (["stats", "--ask", "age: histogram 0 20 10"], "edges"),
        (["stats", "--ask", "wage: mean 0 1"], "'wage'"),
        (["stats", "--ask", "sex: mean 0 1"], "'sex'"),
        (["stats", "--ask", "age: average 0 1"], "--ask"),
        (["stats", "--ask", "count", "--threshold", 6], "threshold=6"),
        (["stats", "--ask", "count", "--csv", "none.csv"], "No such file"),
        ([*FIT, "--outcome", "died"], "columns"),
        ([*FIT, "--outcome", "died", "--number", "age 100 18"], "lower"),
        ([*FIT, "--outcome", "dead", "--number", "age 18 100"], "'dead'"),
        ([*DIED, "--model", "cox"], "--model"),
        ([*DIED, "-p", "most=3"], "most"),
        ([*DIED, "-p", "goal=both"], "goal"),
        ([*FIT, "--outcome", "died", "--number", "sex 18 100"], "'sex'"),
        ([*FIT, "--outcome", "died", "--columns", "nowhere.txt"], "--columns"),
    ],
)
def test_bad_words_print_no_result(run, words, told):
    done = run(*words, "--json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert told in done.stderr


def test_no_name_of_a_column_is_cut_and_noise_is_told(jopeq_command, tmp_path):
    (tmp_path / "table.csv").write_text("age,systolic_pressure\n" + "50,120\n" * 500)
    asked = ("--ask", "age: correlation 0 120 systolic_pressure 60 200", "--epsilon", 0.1)
    done = jopeq_command("stats", *["--csv", tmp_path / "table.csv"] * 3, "--minimum", 1, *asked)
    assert "systolic_pressure" in done.stdout
    assert "Noise hides an answer" in done.stdout


@pytest.mark.parametrize("text", ["age,sex\n3\n", "", "age,age\n3,4\n"])
def test_bad_files_print_no_result(run, tmp_path, text):
    (tmp_path / "bad.csv").write_text(text)
    done = run("stats", "--ask", "count", "--csv", tmp_path / "bad.csv")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "bad.csv" in done.stderr
