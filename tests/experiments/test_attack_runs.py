import json
import time

import numpy as np
import pytest

import jopeq
from jopeq.attacks.images import photos
from jopeq.experiments import attack_runs
from jopeq.experiments.attack_cells import Cell, fig6_cells, fig6_schemes
from jopeq.experiments.attack_runs import (
    ORIGINALS,
    AttackRunner,
    picture_name,
    read_pictures,
)
from jopeq.experiments.attack_training import train_stages
from jopeq.versions import NAMES

RAW, COARSE = jopeq.scheme("none").spec, jopeq.scheme("sdq", rate=4.0).spec


@pytest.fixture
def runner(two_photos, tmp_path):
    data = two_photos
    stages = train_stages(data, tmp_path / "stages.npz", epochs=1)

    def make(**changes):
        return AttackRunner(
            data.train_inputs,
            data.train_labels,
            stages,
            tmp_path / "attacks.jsonl",
            pictures=tmp_path / "pictures.npz",
            **{"iterations": 1, **changes},
        )

    return make


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


def test_an_attack_tells_what_determined_it(runner, tmp_path, monkeypatch):
    cells = [Cell("raw", RAW), Cell("raw", RAW, variant="published"), Cell("raw", RAW, epoch=1)]
    plain, published, later = (one.settings for one in runner().run(cells))
    assert plain.keys() >= {*NAMES, "restarts", "seed", "start", "weights", "device", "dtype"}
    assert plain["jopeq"] == jopeq.__version__
    assert (plain["start"], published["start"]) == ("grey", "normal")
    assert plain["weights"] == published["weights"] != later["weights"]
    assert not plain.keys() & (vars(runner().run(cells[:1])[0]).keys() - {"settings"})
    monkeypatch.setattr(attack_runs, "attack", None)  # nothing is attacked again for it
    path = tmp_path / "attacks.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    old = [{**record, "settings": {"device": "cpu", "torch": "2"}} for record in records]
    path.write_text("".join(json.dumps(record) + "\n" for record in old))
    assert [one.settings for one in runner().run(cells)] == [record["settings"] for record in old]


def test_what_met_other_weights_is_attacked_again(runner, tmp_path):
    cells = [Cell("raw", RAW), Cell("raw", RAW, epoch=1)]
    first = runner().run(cells)
    path = tmp_path / "attacks.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    records[1]["settings"]["weights"] = "SHA-256 of another training"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert runner(deadline=time.monotonic() - 1).run(cells) == first[:1]  # no time for the other
    again = runner().run(cells)
    assert again[0] == first[0]
    assert again[1].settings == first[1].settings
    assert len(path.read_text().splitlines()) == 3


def test_more_iterations_are_for_those_who_still_improve(runner, tmp_path, monkeypatch):
    cell = Cell("raw", RAW)
    (short,) = runner().run([cell])
    assert "spent" in short.status
    (longer,) = runner(iterations=2).run([cell])
    assert longer.iterations == 2
    assert attack_runs.read(tmp_path / "attacks.jsonl") == [longer]  # the last one counts
    monkeypatch.setattr(attack_runs, "attack", None)  # nothing is attacked again
    assert runner().run([cell]) == [longer]
    stalled = {**vars(longer), "status": {"stalled": 2}}
    (tmp_path / "attacks.jsonl").write_text(json.dumps(stalled) + "\n")
    assert runner(iterations=3).run([cell])[0].iterations == 2


@pytest.mark.parametrize(
    ("method", "status", "is_final"),
    [
        ("label", {"stalled": 2}, True),
        ("idlg", {"converged": 1, "spent": 1}, False),
        ("adaptive", {"stalled": 2}, False),  # its first stage may have been cut off
        ("inverting", {"stalled": 2}, False),  # its rate follows the budget
    ],
)
def test_what_more_iterations_could_change(kept_attack, method, status, is_final):
    one = kept_attack(Cell("raw", RAW, method), iterations=150, status=status)
    assert one.is_final(150)
    assert one.is_final(300) == is_final


def test_lost_pictures_are_made_again(runner, tmp_path):
    cell = Cell("raw", fig6_schemes()["raw"].spec)
    runner().run([cell])
    path = tmp_path / "pictures.npz"
    before = path.read_bytes()
    path.unlink()
    runner().run([cell])
    assert path.read_bytes() == before
    assert len((tmp_path / "attacks.jsonl").read_text().splitlines()) == 2


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


def test_batches_are_a_cell_on_a_cpu_and_what_fits_on_a_gpu(runner, monkeypatch):
    assert max(map(len, runner()._batches(list(fig6_cells())))) == 1
    for free, most in ((80 << 30, 2800), (4 << 30, 512), (1 << 20, 0)):
        monkeypatch.setattr("torch.cuda.mem_get_info", lambda device, free=free: (free, 80 << 30))
        assert attack_runs._most_at_once("cuda") == most


def test_out_of_time_leaves_what_is_done(runner, tmp_path):
    cells = [Cell("raw", RAW), Cell("raw", RAW, "idlg")]
    assert runner(deadline=time.monotonic() - 1).run(cells) == []
    runner().run(cells[:1])
    assert len(runner(deadline=time.monotonic() - 1).run(cells)) == 1
    with pytest.raises(ValueError, match="epoch 9"):
        runner().run([Cell("raw", RAW, epoch=9)])
