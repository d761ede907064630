"""Training the LeNet and attacking it: nothing twice, nothing lost."""

import json

import pytest
import torch

import jopeq
from jopeq.errors import DataError
from jopeq.lab.attacks.images import photos
from jopeq.lab.training.data import Dataset
from paper import attacks
from paper.attacks import ATTACKS_FILE, train_stages
from paper.cells import Cell

RAW, COARSE = jopeq.scheme("none").spec, jopeq.scheme("sdq", rate=4.0).spec


@pytest.fixture
def two_photos():
    """Two images as a data set."""
    images, labels = photos(2), torch.tensor([3, 8])
    return Dataset("tiny", images, labels, images, labels, 10)


def tiny(count):
    images = torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(count) % 10
    return Dataset("tiny", images, labels, images[:20], labels[:20], 10)


@pytest.fixture
def runner(two_photos, tmp_path):
    stages = train_stages(two_photos, tmp_path / "stages.npz", epochs=1)

    def make(**changes):
        images, labels = two_photos.train_inputs, two_photos.train_labels
        changes = {"iterations": 1, **changes}
        return attacks.AttackRunner(images, labels, stages, tmp_path, **changes)

    return make


def records(folder):
    return [json.loads(line) for line in (folder / ATTACKS_FILE).read_text().splitlines()]


def rewrite(folder, changed):
    (folder / ATTACKS_FILE).write_text("".join(json.dumps(one) + "\n" for one in changed))


def test_cells_are_attacked_once_and_kept(runner, tmp_path, monkeypatch):
    cells = [Cell("raw", RAW), Cell("raw", RAW, epoch=1), Cell("sdq", COARSE, "adaptive")]
    first = runner().run(cells)
    assert [one.key for one in first] == [cell.key for cell in cells]
    assert [len(one.ssim) for one in first] == [2, 2, 2]
    assert first[0].snr is None
    assert first[2].snr > 1
    assert first[0].ssim != first[1].ssim  # another stage of training
    told = first[0].settings
    assert told.keys() >= {*("jopeq", "torch", "restarts", "seed", "start", "weights", "commit")}
    assert "device" in told
    assert 1.0 < told["peak"] < 126.0  # of 15,826 entries
    assert told["weights"] != first[1].settings["weights"]
    assert [one["method"] for one in records(tmp_path)] == ["label", "label", "adaptive"]
    monkeypatch.setattr(attacks, "attack", None)  # nothing is attacked again
    assert runner().run([*cells, cells[0]]) == first
    rewrite(tmp_path, [{**one, "settings": {"torch": "2"}} for one in records(tmp_path)])
    assert [one.ssim for one in runner().run(cells)] == [one.ssim for one in first]


def test_a_figure_trains_and_attacks_what_it_lacks(two_photos, tmp_path, monkeypatch):
    raw = [Cell("raw", RAW), Cell("raw", RAW, epoch=1)]
    monkeypatch.setattr(attacks, "EPOCHS", 1)
    monkeypatch.setattr(attacks, "figure_cells", lambda name: raw)
    told = []
    figure = ("fig4", two_photos, tmp_path)
    few = {"images": 2, "iterations": 1}
    done = attacks.attack_figure(*figure, **few, progress=lambda *news: told.append(news[2]))
    assert done == (2, 2)
    assert any("training" in text for text in told)
    assert len(records(tmp_path)) == 2
    raw[:] = [Cell("raw", RAW, "dlg", 5, "repository")]
    again = attacks.attack_figure("repository", *figure[1:], **few)
    assert again == (1, 1)
    assert records(tmp_path)[-1]["settings"]["start"] == "normal"
    raw[:] = [Cell("raw", RAW), Cell("raw", RAW, epoch=1)]
    elsewhere = tmp_path / "b"
    assert attacks.attack_figure("fig4", two_photos, elsewhere, images=2, seconds=0) == (0, 2)
    with pytest.raises(DataError, match="70 images"):
        attacks.attack_figure("fig6", two_photos, tmp_path / "c")
    assert not (tmp_path / "c").exists()
