"""The folders of ``jopeq train --out``, as training itself writes them."""

import json
import shutil

import pytest

from jopeq import scheme
from jopeq.errors import DataError
from jopeq.experiments.report import report
from jopeq.federated.simulation import TrainConfig, train


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two seeds, as ``--seeds 2`` leaves them."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (0, 10):
        config = TrainConfig(
            scheme=scheme("jopeq", epsilon=4.0, rate=2.0),
            data="digits",
            clients=2,
            rounds=2,
            local_steps=2,
            compile="off",
            threads=1,
            seed=seed,
        )
        train(config, out=folder / f"seed-{seed}")
    return folder


@pytest.fixture
def folder(trained, tmp_path):
    """A copy, to be spoilt."""
    return shutil.copytree(trained, tmp_path / "runs")


def _summary(folder):
    return json.loads((folder / "summary.json").read_text())


def test_several_seeds_are_one_row(folder, read_html):
    text, problems = report(folder)
    page = read_html(text)
    assert problems == []
    assert page.ids[:3] == ["theme", "training", page.ids[2]]
    means, each, *rounds = page.tables[:-1]
    accuracies = [100 * _summary(folder / f"seed-{seed}")["test_accuracy"] for seed in (0, 10)]
    row = dict(zip(*means, strict=True))
    assert row["seeds"] == "2"
    assert row["test accuracy, %"].startswith(f"{sum(accuracies) / 2:.2f} ± ")
    assert row["scheme"] == "jopeq epsilon=4.0 rate=2.0"
    assert [line[4] for line in each[1:]] == ["0", "10"]
    assert [len(table) - 1 for table in rounds] == [2, 2]
    assert page.figures == 1


def test_the_configuration_is_config_json(folder, read_html):
    page = read_html(report(folder / "seed-10")[0])
    assert {row[-1] for table in page.tables[:-1] for row in table[1:]} == {"c1"}
    ((_, file, settings),) = page.tables[-1][1:]
    assert file == "config.json"
    config = json.loads((folder / "seed-10" / "config.json").read_text())
    for name in ("lr", "clients", "batch_size", "momentum", "dimension", "numpy"):
        assert f"{name} = {config[name]}," in settings
    rounds = (folder / "seed-10" / "rounds.jsonl").read_text().splitlines()
    loss = page.tables[2][0].index("train_loss")
    shown = [float(row[loss]) for row in page.tables[2][1:]]
    assert shown == pytest.approx([json.loads(line)["train_loss"] for line in rounds], rel=1e-3)


def test_a_run_that_has_not_ended_shows_its_rounds(folder, read_html):
    (folder / "seed-10" / "summary.json").unlink()
    text, problems = report(folder)
    assert len(problems) == 1
    assert problems[0].startswith("seed-10/summary.json: cannot be read")
    means, *_ = tables = read_html(text).tables
    assert means[1][means[0].index("seeds")] == "1"
    assert len(tables) == 5  # means, runs, rounds of both, configurations
    stale = {**_summary(folder / "seed-0"), "rounds": 9}
    (folder / "seed-10" / "summary.json").write_text(json.dumps(stale))
    assert "it is not of these 2 rounds" in report(folder)[1][0]


@pytest.mark.parametrize("content", ["{", "[1]", '{"scheme": 1}', None])
def test_a_folder_without_its_configuration_is_named(folder, content, read_html):
    path = folder / "seed-0" / "config.json"
    path.write_text(content) if content else path.unlink()
    text, problems = report(folder)
    assert [problem.split(":")[0] for problem in problems] == ["seed-0/config.json"]
    assert "Rounds, seed 10" in read_html(text).text
    assert "Rounds, seed 0" not in read_html(text).text
    if content:  # rounds without a configuration are records like any others
        text, problems = report(folder / "seed-0")
        assert problems[0].startswith("config.json: ")
        assert "file-rounds" in read_html(text).ids


def test_rounds_that_cannot_be_read_are_named(folder, read_html):
    path = folder / "seed-0" / "rounds.jsonl"
    path.write_text(path.read_text() + '{"round": 3, "par')
    assert report(folder)[1][0].startswith("seed-0/rounds.jsonl, line 3: not JSON")
    path.write_text("")
    text, problems = report(folder)
    assert problems == ["seed-0/rounds.jsonl: empty"]
    assert "Rounds, seed 0" not in read_html(text).text
    with pytest.raises(DataError, match=r"\(rounds\.jsonl: empty\)"):
        report(path.parent)


def test_a_run_without_test_and_validation_is_shown(folder, read_html):
    place = folder / "seed-0"
    (place / "summary.json").write_text(json.dumps({**_summary(place), "test_accuracy": None}))
    rounds = [json.loads(line) for line in (place / "rounds.jsonl").read_text().splitlines()]
    lines = [json.dumps({**metrics, "validation_accuracy": None}) for metrics in rounds]
    (place / "rounds.jsonl").write_text("\n".join(lines) + "\n")
    text, problems = report(place)
    assert problems == []
    table = read_html(text).tables[0]
    assert table[1][table[0].index("test accuracy, %")] == "–"
