import csv
import json
import math
import sys
import time
from pathlib import Path

import pytest

from jopeq.federated import record
from jopeq.federated.metrics import RoundMetrics
from jopeq.federated.record import Recorder, plot, read_rounds

FIELDS = RoundMetrics.__dataclass_fields__


def rounds(count, **changes):
    plain = dict.fromkeys(FIELDS, 1.0)
    return [RoundMetrics(**{**plain, "round": n + 1, **changes}) for n in range(count)]


def test_lines_are_there_as_they_come(tmp_path):
    recorder = Recorder(tmp_path / "new" / "run")
    recorder.start({"lr": 0.1})
    first, second = rounds(2, snr=math.inf)
    recorder.add(first)
    assert read_rounds(tmp_path / "new" / "run" / record.ROUNDS) == [first]
    recorder.add(second)
    recorder.finish([first, second], {"test_accuracy": 0.5})
    folder = tmp_path / "new" / "run"
    assert read_rounds(folder / record.ROUNDS) == [first, second]
    assert json.loads((folder / record.CONFIG).read_text()) == {"lr": 0.1}
    assert json.loads((folder / record.SUMMARY).read_text()) == {"test_accuracy": 0.5}
    assert (folder / record.CURVES).read_bytes().startswith(b"\x89PNG")
    with (folder / record.TABLE).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["round"] for row in rows] == ["1", "2"]
    assert rows[0]["snr"] == ""


def test_resuming_drops_later_and_broken_lines(tmp_path):
    recorder = Recorder(tmp_path)
    recorder.start({})
    past = rounds(3)
    for each in past:
        recorder.add(each)
    recorder.close()
    path = tmp_path / record.ROUNDS
    path.write_text(path.read_text() + '{"round": 4, "sn')
    assert read_rounds(path) == past
    again = Recorder(tmp_path)
    again.start({}, past[:2])
    again.add(past[2])
    again.close()
    assert read_rounds(path) == past
    assert path.read_text().count("\n") == 3


def test_add_needs_start(tmp_path):
    with pytest.raises(RuntimeError, match="start"):
        Recorder(tmp_path).add(rounds(1)[0])


def test_nothing_to_show(tmp_path):
    recorder = Recorder(tmp_path)
    recorder.start({})
    recorder.finish([], {})
    assert (tmp_path / record.TABLE).read_text() == ""


def test_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert not plot(tmp_path / "curves.png", rounds(2))
    assert not (tmp_path / "curves.png").exists()


def test_without_tensorboard(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match="pip install tensorboard"):
        Recorder(tmp_path / "run", tensorboard=True)
    assert not (tmp_path / "run").exists()


def test_tensorboard_gets_every_number(tmp_path, monkeypatch):
    written = []

    class Writer:
        def __init__(self, log_dir, purge_step):
            written.append((Path(log_dir).name, purge_step))

        def add_scalar(self, name, value, step):
            written.append((name, value, step))

        def flush(self):
            pass

        def close(self):
            written.append("closed")

    monkeypatch.setattr(record, "_tensorboard_writer", lambda: Writer)
    recorder = Recorder(tmp_path, tensorboard=True)
    assert not written  # a writer makes files: none before the run begins
    recorder.start({})
    recorder.add(rounds(1, clip=None)[0])
    recorder.close()
    assert written[0] == ("tensorboard", 1)
    assert ("train_loss", 1.0, 1) in written
    assert "clip" not in {each[0] for each in written}
    assert written[-1] == "closed"


def test_rounds_that_are_run_again_are_not_shown_twice(tmp_path):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for past, new in (((), rounds(3)), (rounds(1), rounds(3)[1:])):  # stopped, resumed after one
        recorder = Recorder(tmp_path, tensorboard=True)
        recorder.start({}, past)
        for metrics in new:
            recorder.add(metrics)
        recorder.close()
        time.sleep(1.1)  # files are read in the order of the second they were made in
    found = events.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [event.step for event in found.Scalars("train_loss")] == [1, 2, 3]
