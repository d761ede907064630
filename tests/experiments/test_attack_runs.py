import json
import time

import numpy as np
import pytest
import torch

import jopeq
from jopeq.attacks.images import photos
from jopeq.experiments import attack_runs
from jopeq.experiments.attack_cells import (
    FIGURES,
    Cell,
    fig4_cells,
    fig5_schemes,
    fig6_cells,
    fig6_schemes,
)
from jopeq.experiments.attack_figures import KEPT, attack_figure, figure_cells
from jopeq.experiments.attack_page import attack_section
from jopeq.experiments.attack_report import (
    attacks_markdown,
    found_for,
    recovered,
    save_fig4,
    save_fig5,
    server_epsilon,
)
from jopeq.experiments.attack_runs import (
    ORIGINALS,
    Attacked,
    AttackRunner,
    picture_name,
    read,
    read_pictures,
)
from jopeq.experiments.attack_training import train_stages
from jopeq.federated.data import Dataset

RAW, COARSE = jopeq.scheme("none").spec, jopeq.scheme("sdq", rate=4.0).spec


def tiny():
    images = photos(2)
    labels = torch.tensor([3, 8])
    return Dataset("tiny", images, labels, images, labels, 10)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def runner(tmp_path):
    data = tiny()
    stages = train_stages(data, tmp_path / "stages.npz", epochs=1)

    def make(**changes):
        return AttackRunner(
            data.train_inputs,
            data.train_labels,
            stages,
            tmp_path / "attacks.jsonl",
            pictures=tmp_path / "pictures.npz",
            iterations=1,
            **changes,
        )

    return make


def kept(cell, ssim=0.4, **changes):
    values = {
        "label": cell.label,
        "spec": cell.spec,
        "method": cell.method,
        "epoch": cell.epoch,
        "variant": cell.variant,
        "images": 3,
        "iterations": 150,
        "ssim": [ssim, ssim + 0.2, ssim - 0.2],
        "mse": [0.01, 0.02, 0.03],
        "loss": [0.1, 0.2, None],
        "status": {"spent": 3},
        "labels_right": 2,
        "evaluations": 3000.0,
        "snr": 4.0,
        "seconds": 1.0,
        "settings": {
            "device": "cpu",
            "dtype": "float32",
            "torch": "2",
            "grey_ssim": 0.1,
            "grey_mse": 0.06,
        },
    }
    return Attacked(**{**values, **changes})


def test_cells_are_attacked_once_and_kept(runner, tmp_path, monkeypatch):
    cells = [Cell("raw", RAW), Cell("raw", RAW, epoch=1), Cell("sdq", COARSE, "adaptive")]
    first = runner().run(cells)
    assert [one.key for one in first] == [cell.key for cell in cells]
    assert [len(one.ssim) for one in first] == [2, 2, 2]
    assert first[0].snr is None
    assert first[2].snr > 1
    assert first[0].ssim != first[1].ssim  # another stage of training
    lines = (tmp_path / "attacks.jsonl").read_text().splitlines()
    assert [json.loads(line)["method"] for line in lines] == ["label", "label", "adaptive"]
    monkeypatch.setattr(attack_runs, "attack", None)  # nothing is attacked again
    assert runner().run([*cells, cells[0]]) == first


def test_pictures_of_figure_6_and_the_originals_are_kept(runner, tmp_path):
    label = "raw"
    shown = Cell(label, fig6_schemes()[label].spec)
    runner().run([shown, Cell("raw", RAW, epoch=1), Cell("other", COARSE, "idlg")])
    pictures = read_pictures(tmp_path / "pictures.npz")
    assert set(pictures) == {picture_name(shown), ORIGINALS}
    assert pictures[ORIGINALS].dtype == np.uint8
    assert np.abs(pictures[ORIGINALS] / 255.0 - photos(2).numpy()).max() < 0.003


def test_batches_hold_what_can_be_attacked_together(runner):
    made = runner(most_at_once=6)
    batches = list(made._batches(list(fig6_cells())))
    assert sum(map(len, batches)) == len(list(fig6_cells()))
    assert max(map(len, batches)) == 3
    for batch in batches:
        assert len({cell.method for cell in batch}) == 1
        if batch[0].method == "adaptive":
            assert len({cell.scheme.name for cell in batch}) == 1


def test_out_of_time_leaves_what_is_done(runner, tmp_path):
    cells = [Cell("raw", RAW), Cell("raw", RAW, "idlg")]
    assert runner(deadline=time.monotonic() - 1).run(cells) == []
    runner().run(cells[:1])
    assert len(runner(deadline=time.monotonic() - 1).run(cells)) == 1
    with pytest.raises(ValueError, match="epoch 9"):
        runner().run([Cell("raw", RAW, epoch=9)])


def test_a_figure_trains_and_attacks_what_it_lacks(tmp_path, monkeypatch):
    raw = [Cell("raw", RAW), Cell("raw", RAW, epoch=1)]
    monkeypatch.setattr("jopeq.experiments.attack_figures.EPOCHS", 1)
    monkeypatch.setattr("jopeq.experiments.attack_figures.fig4_cells", lambda: raw)
    told = []
    found, total = attack_figure(
        *("fig4", tiny(), tmp_path),
        images=2,
        iterations=1,
        progress=lambda *facts: told.append(facts[2]),
    )
    assert len(found) == total == 2
    assert any("training" in text for text in told)
    assert len(read(tmp_path / KEPT)) == 2
    assert attack_figure("fig4", tiny(), tmp_path / "b", images=2, seconds=0) == ([], 2)
    with pytest.raises(ValueError, match="fig9"):
        figure_cells("fig9")


def test_the_figures_are_those_of_the_paper():
    assert {cell.epoch for cell in fig4_cells()} == set(range(31))
    assert {cell.scheme.name for cell in fig4_cells()} == {"none", "sdq", "jopeq", "response"}
    assert min(e for _, e in fig5_schemes()) == 10.0
    assert max(e for _, e in fig5_schemes()) == pytest.approx(1e5)
    assert set(FIGURES) == {"fig4", "fig5", "fig6", "methods"}


def test_the_saturated_scheme_has_no_epsilon():
    schemes = fig5_schemes()
    assert server_epsilon(schemes["jopeq, R=4", 10.0]) == float("inf")  # no noise is added
    assert server_epsilon(schemes["laplace", 10.0]) == 10.0
    assert 10.0 < server_epsilon(schemes["jopeq, R=8", 10.0]) < 10.2


def test_recovered_counts_and_the_most_images_win():
    cell = Cell("raw", RAW)
    assert recovered(kept(cell, 0.6)).hits == 2
    few, many = kept(cell, images=3), kept(cell, images=70)
    assert found_for([cell], [few, many])[cell.key] is many
    assert found_for([cell], [many, few])[cell.key] is many


def test_figures_table_and_page(tmp_path):
    everything = {cell.key: cell for make in FIGURES.values() for cell in make()}
    attacked = [kept(cell) for cell in everything.values()]
    save_fig4(attacked, tmp_path / "fig4.png")
    save_fig5(attacked, tmp_path / "fig5.png")
    assert all((tmp_path / name).stat().st_size > 20_000 for name in ("fig4.png", "fig5.png"))
    table = attacks_markdown(attacked)
    assert "| raw | none | label | 0.400 | 33% (6–79%) | 0.0200 | given |" in table
    assert "| raw | none | idlg | 0.400 | 33% (6–79%) | 0.0200 | 2/3 |" in table
    assert "label, published" in table
    results = tmp_path / "results"
    results.mkdir()
    assert attack_section(results, tmp_path, "figures") == ""
    lines = [json.dumps(vars(one)) for one in attacked]
    (results / KEPT).write_text("\n".join(lines))
    section = attack_section(results, tmp_path, "figures")
    assert "every epoch from 0 to 30" in section
    assert "nan" not in section
    for words in ("Figure 4", "Figure 5", "Figure 6", "33% (6–79%)"):
        assert words in section


def test_a_part_of_the_results_makes_a_part_of_the_page(tmp_path):
    some = [cell for cell in fig4_cells() if cell.epoch in (0, 5)]
    (tmp_path / KEPT).write_text("\n".join(json.dumps(vars(kept(cell))) for cell in some))
    section = attack_section(tmp_path, tmp_path, "figures")
    assert "attacked at epochs 0, 5." in section
    assert "### Figure 5" not in section
