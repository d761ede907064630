"""``jopeq evaluate``."""

import json

import numpy as np

from jopeq.models import Logistic, Number


def test_a_table_a_picture_and_one_object(tmp_path, jopeq_command):
    rng, words, tables = np.random.default_rng(2), [], []
    for place in range(4):
        age, sex = rng.uniform(18, 100, 1000).round(1), rng.choice(["F", "M"], 1000)
        died = (rng.random(1000) < 1 / (1 + np.exp(4 - 0.06 * age))).astype(int)
        tables.append({"age": age, "sex": sex, "died": died})
        lines = [",".join(map(str, row)) for row in zip(age, sex, died, strict=True)]
        path = tmp_path / f"hospital{place}.csv"
        path.write_text("\n".join(["age,sex,died", *lines]) + "\n")
        words += ["--csv", path]
    terms = {"epsilon": 4.0, "clients": 4, "threshold": 4, "records": 4000}
    Logistic("died", [Number("age", 18, 100)], **terms).fit(tables).save(tmp_path / "fit.json")
    words = ["evaluate", tmp_path / "fit.json", "--epsilon", 4, "--records", 4000, *words]
    done = jopeq_command(*words, "--by", "sex F M", "--plot", tmp_path / "roc.svg")
    assert done.exit_code == 0, done.output
    assert done.stdout.count("AUC") == 3
    assert "ε = " in done.stdout
    assert (tmp_path / "roc.svg").stat().st_size > 5000
    found = json.loads(jopeq_command(*words, "--json").stdout)
    assert found["figures"]["AUC"]["value"] > 0.7
    refused = jopeq_command(*words, "--cut", 2)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "threshold" in refused.stderr
