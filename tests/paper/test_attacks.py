"""Training the LeNet and attacking it: nothing twice, nothing lost."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import jopeq
from jopeq.errors import DataError
from jopeq_lab.attacks.images import photos
from jopeq_lab.training.data import Dataset
from paper import attacks
from paper.attacks import ATTACKS_FILE, train_stages
from paper.cells import Cell

KEPT = Path(__file__).parents[2] / "results"
RAW, COARSE = jopeq.scheme("none").spec, jopeq.scheme("sdq", rate=4.0).spec


@pytest.fixture
def two_photos():
    """Two images as a data set."""
    images, labels = photos(2), torch.tensor([3, 8])
    return Dataset("tiny", images, labels, images, labels, 10)


@pytest.fixture(autouse=True)
def one_iteration(monkeypatch):
    """Otherwise as the cell says."""
    usual = Cell.config
    monkeypatch.setattr(Cell, "config", lambda cell: replace(usual(cell), iterations=1))


def records(folder):
    return [json.loads(line) for line in (folder / ATTACKS_FILE).read_text().splitlines()]


def test_cells_are_attacked_once_and_kept(two_photos, tmp_path, monkeypatch):
    stages = train_stages(two_photos, tmp_path / "stages.npz", range(2))
    cells = [Cell("raw", RAW), Cell("raw", RAW, epoch=1), Cell("sdq", COARSE, "adaptive")]
    given = two_photos.train_inputs, two_photos.train_labels, stages, tmp_path
    first = attacks.attack_cells(cells, *given)
    assert [one.key for one in first] == [cell.key for cell in cells]
    assert [len(one.ssim) for one in first] == [2, 2, 2]
    assert first[0].ssim != first[1].ssim  # another stage of training
    told = first[0].settings
    assert told.keys() >= {*("jopeq", "torch", "seed", "start", "weights", "commit")}
    assert 1.0 < told["peak"] < 126.0  # of 15,826 entries
    assert told["weights"] != first[1].settings["weights"]
    assert [one["method"] for one in records(tmp_path)] == ["label", "label", "adaptive"]
    monkeypatch.setattr(attacks, "attack", None)  # nothing is attacked again
    assert attacks.attack_cells([*cells, cells[0]], *given) == first


def test_a_figure_trains_and_attacks_what_it_lacks(two_photos, tmp_path, monkeypatch):
    raw = [Cell("raw", RAW), Cell("raw", RAW, epoch=1)]
    monkeypatch.setattr(attacks, "EPOCHS", 1)
    monkeypatch.setattr(attacks, "figure_cells", lambda name: raw)
    told, few = [], {"images": 2}
    progress = lambda *news: told.append(news[2])  # noqa: E731
    attacks.attack_figure("fig4", two_photos, tmp_path, **few, progress=progress)
    assert any("training" in text for text in told)
    assert len(records(tmp_path)) == 2
    kept = (tmp_path / attacks.STAGES_FILE).read_bytes()
    raw[:] = [Cell("raw", RAW, "dlg", 5, "repository")]
    attacks.attack_figure("repository", two_photos, tmp_path, **few)
    assert len(records(tmp_path)) == 3
    assert records(tmp_path)[-1]["settings"]["start"] == "normal"
    assert (tmp_path / attacks.STAGES_FILE).read_bytes() == kept
    with pytest.raises(DataError, match="70 images"):
        attacks.attack_figure("fig6", two_photos, tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_the_page_on_attacks_says_what_the_published_way_costs():
    """Of Figure 6: evaluations per image, and images recovered, from raw gradients."""
    found = [one for one in attacks.read_attacks(KEPT / ATTACKS_FILE) if one.label == "raw"]
    page = " ".join((KEPT.parent / "docs" / "entries.md").read_text("utf-8").split())
    told = {"": "ours takes {} and recovers all {}"}
    told["published"] = "takes {} evaluations per image and recovers {}"
    for variant, words in told.items():
        (one,) = [o for o in found if (o.method, o.epoch, o.variant) == ("label", 0, variant)]
        hits = sum(ssim > 0.5 for ssim in one.ssim)
        assert words.format(f"{one.evaluations:,.0f}", hits) in page
