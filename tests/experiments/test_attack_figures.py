import pytest

import jopeq
from jopeq.errors import DataError
from jopeq.experiments.attack_cells import Cell
from jopeq.experiments.attack_figures import ATTACKS_FILE, attack_figure
from jopeq.experiments.attack_runs import read

RAW = jopeq.scheme("none").spec


def test_a_figure_trains_and_attacks_what_it_lacks(two_photos, tmp_path, monkeypatch):
    raw = [Cell("raw", RAW), Cell("raw", RAW, epoch=1)]
    monkeypatch.setattr("jopeq.experiments.attack_figures.EPOCHS", 1)
    monkeypatch.setattr("jopeq.experiments.attack_figures.figure_cells", lambda name: raw)
    told = []
    found, total = attack_figure(
        *("fig4", two_photos, tmp_path),
        images=2,
        iterations=1,
        progress=lambda *facts: told.append(facts[2]),
    )
    assert len(found) == total == 2
    assert any("training" in text for text in told)
    assert len(read(tmp_path / ATTACKS_FILE)) == 2
    assert attack_figure("fig4", two_photos, tmp_path / "b", images=2, seconds=0) == ([], 2)


def test_too_few_images_are_refused_before_anything_is_trained(two_photos, tmp_path):
    with pytest.raises(DataError, match="70 images, the data set has only 2"):
        attack_figure("fig6", two_photos, tmp_path)
    assert not list(tmp_path.iterdir())
