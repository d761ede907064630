"""``jopeq stats``."""

import json

import numpy as np
import pytest


@pytest.fixture
def run(jopeq_command):
    return lambda *words: jopeq_command("stats", *words)


@pytest.fixture
def tables(tmp_path):
    """The options of ten hospitals, 400 patients each, some without an age."""
    rng, words = np.random.default_rng(5), []
    for hospital in range(10):
        ages = rng.normal(60, 15, 400).round().astype(int).astype(str)
        ages[:8] = ["", "NA", *ages[2:8]]
        sexes = rng.choice(["F", "M"], 400)
        lines = [f"{age},{sex}" for age, sex in zip(ages, sexes, strict=True)]
        path = tmp_path / f"hospital{hospital}.csv"
        path.write_text("\n".join(["age,sex", *lines]) + "\n")
        words += ["--csv", path]
    return words


def test_one_object_or_a_table(run, tables, tmp_path):
    asked = ["age: mean 0 120", "age: quartiles 0 120", "sex: proportions F M"]
    words = [word for one in asked for word in ("--ask", one)]
    done = run(*tables, "--epsilon", 0.5, "--delta", 1e-5, *words, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert abs(found["age"]["mean"]["value"] - 60) < 6 * found["age"]["mean"]["error"] + 1
    assert list(found["age"]["quartiles"]["value"]) == ["25%", "50%", "75%"]
    assert sum(found["sex"]["proportions"]["value"].values()) == pytest.approx(1.0)
    picture = tmp_path / "ages.svg"
    shown = run(*tables, "--epsilon", 1, "--ask", "age: histogram 0 120 bins=6", "--plot", picture)
    assert shown.exit_code == 0, shown.output
    assert "[20, 40)" in shown.stdout
    assert picture.stat().st_size > 5000


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("age: mean 120 0", "lower and upper"),
        ("age: histogram 0 20 10", "edges"),
        ("wage: mean 0 1", "'wage'"),
        ("sex: mean 0 1", "'sex'"),
        ("age: average 0 1", "--ask"),
    ],
)
def test_bad_questions_print_no_answer(run, tables, asked, told):
    done = run(*tables, "--epsilon", 0.5, "--ask", "age: mean 0 120", "--ask", asked, "--json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert told in done.stderr


def test_too_few_hospitals_and_bad_files_print_no_answer(run, tables, tmp_path):
    asked = ("--epsilon", 0.5, "--ask", "age: mean 0 120")
    (tmp_path / "uneven.csv").write_text("age,sex\n3\n")
    (tmp_path / "empty.csv").write_text("")
    for files in (
        tables[:4],
        [*tables, "--csv", tmp_path / "none.csv"],
        [*tables, "--csv", tmp_path / "uneven.csv"],
        [*tables, "--csv", tmp_path / "empty.csv"],
    ):
        done = run(*files, *asked)
        assert (done.exit_code, done.stdout) == (2, "")
    assert "threshold=3" in run(*tables[:4], *asked).stderr


def test_survival_curves_and_their_picture(run, tmp_path):
    rng, words = np.random.default_rng(6), []
    for hospital in range(5):
        months, arms = rng.exponential(20, 400), rng.choice(["A", "B"], 400)
        lines = [f"{m:.1f},{int(m < 40)},{arm}" for m, arm in zip(months, arms, strict=True)]
        path = tmp_path / f"hospital{hospital}.csv"
        path.write_text("\n".join(["months,death,arm", *lines]) + "\n")
        words += ["--csv", path]
    asked = "months: survival death 0 40 bins=8 by=arm:A,B"
    done = run(*words, "--epsilon", 2, "--ask", asked, "--plot", tmp_path / "curves.svg")
    assert done.exit_code == 0, done.output
    assert "log-rank test" in done.stdout
    assert (tmp_path / "curves.svg").stat().st_size > 10_000
    found = json.loads(run(*words, "--epsilon", 2, "--ask", asked, "--json").stdout)
    curve = found["months"]["survival by arm"]["curves"][0]
    assert abs(curve["survival"][4] - np.exp(-1)) < 6 * curve["error"][4]


def test_no_name_of_a_column_is_cut_and_noise_is_told(run, tmp_path):
    words = []
    for hospital in range(3):
        path = tmp_path / f"hospital{hospital}.csv"
        path.write_text("age,systolic_pressure\n" + "50,120\n" * 500)
        words += ["--csv", path]
    asked = ("--ask", "age: correlation 0 120 systolic_pressure 60 200")
    done = run(*words, "--epsilon", 0.1, "--minimum", 1, *asked)
    assert "systolic_pressure" in done.stdout
    assert "Noise hides an answer" in done.stdout
    missing = run("--csv", tmp_path / "none.csv", *asked, "--epsilon", 1)
    assert "No such file" in missing.output
