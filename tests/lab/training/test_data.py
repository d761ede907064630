"""Data sets: bundled, read from files sound, damaged and hostile, cached; and their splits."""

import gzip
import pickle

import numpy as np
import pytest
import torch

from jopeq.errors import DataError
from jopeq_lab.training import data
from tests.lab.training import small
from tests.lab.training.small import CIFAR10, IDX, NAMES, ZIPPED, check_cifar10, check_idx, write

TAR = "cifar-10-python.tar.gz"

# Cache and download


@pytest.mark.usefixtures("published")
def test_downloads_into_the_cache(tmp_path, monkeypatch):
    contents, asked, steps = ZIPPED["fashion-mnist"] | small.ARCHIVE, [], []

    def fetch(remote, folder, progress):
        asked.append(remote.name)
        write(folder, {remote.name: contents[remote.name]})
        progress(1, 1)

    monkeypatch.setattr(data, "fetch", fetch)
    progress = lambda *step: steps.append(step)  # noqa: E731
    monkeypatch.setenv("JOPEQ_CACHE", str(tmp_path))
    data.load("fashion-mnist", progress=progress)
    assert asked == [f"{name}.gz" for name in NAMES]
    check_cifar10(data.load("cifar10", progress=progress))
    assert len(steps) == 5


@pytest.mark.usefixtures("published")
def test_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("JOPEQ_CACHE", str(tmp_path / "cache"))
    for name, given, words in (
        ("imagenet", {}, "cifar10"),
        ("digits", {"data_dir": tmp_path}, "data_dir"),
        ("mnist", {"data_dir": tmp_path / "no"}, "data_dir"),
        ("cifar10", {"data_dir": tmp_path}, TAR),
    ):
        with pytest.raises((ValueError, DataError), match=words):
            data.load(name, **given)
    # whoever names a folder wants its files: neither cache nor network takes their place
    write(tmp_path / "cache" / "mnist", ZIPPED["mnist"])
    for name, files, missing in (
        *(("mnist", ZIPPED["mnist"], f"{name}.gz") for name in NAMES),
        ("cifar10", CIFAR10, "data_batch_3"),
    ):
        write(tmp_path / missing, {n: c for n, c in files.items() if n != missing})
        with pytest.raises(DataError, match=missing):
            data.load(name, data_dir=tmp_path / missing)


# Data sets of one's own, and their splits


def dataset(**changes):
    fields = {
        "name": "mine",
        "train_inputs": torch.arange(240, dtype=torch.float32).reshape(60, 1, 2, 2),
        "train_labels": torch.arange(60) % 10,
        "test_inputs": torch.zeros(3, 1, 2, 2),
        "test_labels": torch.zeros(3, dtype=torch.int64),
        "classes": 10,
    }
    return data.Dataset(**fields | changes)


@pytest.mark.parametrize("count", [0, 1, 10, 59, np.int64(7), None])
def test_split_validation(count):
    mine, given = dataset(), () if count is None else (count,)
    inputs, labels, held_inputs, held_labels = data.split_validation(mine, *given, seed=4)
    assert len(held_inputs) == len(held_labels) == (10 if count is None else count)
    both = torch.cat((inputs, held_inputs))
    order = both[:, 0, 0, 0].argsort()
    assert torch.equal(both[order], mine.train_inputs)
    assert torch.equal(torch.cat((labels, held_labels))[order], mine.train_labels)
    if count == 10:
        same, other = (data.split_validation(mine, 10, seed=seed)[2] for seed in (4, 5))
        assert torch.equal(held_inputs, same)
        assert not torch.equal(held_inputs, other)
        for wrong in (-1, 60, 1.5, True, "10"):
            with pytest.raises(ValueError, match="validation"):
                data.split_validation(mine, wrong)


def test_the_bundled_split_never_changes():
    labels = np.repeat(np.arange(3), (10, 7, 4))
    inputs = np.arange(21, dtype=np.float32).reshape(-1, 1, 1, 1)
    train_inputs, _, test_inputs, _ = data.split(inputs, labels)
    assert test_inputs.ravel().tolist() == [16, 9, 1]
    assert sorted(np.concatenate((train_inputs, test_inputs)).ravel()) == list(range(21))


# Files


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("files", [ZIPPED, IDX], ids=["zipped", "unzipped"])
@pytest.mark.usefixtures("published")
def test_idx_sets(tmp_path, name, files):
    """From the folder, from torchvision's, and first of all from the set's own."""
    torchvision = {"mnist": "MNIST/raw", "fashion-mnist": "FashionMNIST/raw"}[name]
    for place in ("", torchvision, name):
        write(tmp_path / place, files[name])
        check_idx(data.load(name, data_dir=str(tmp_path)))
        write(tmp_path / place, dict.fromkeys(files[name], b"of another data set"))
    with pytest.raises(DataError):
        data.load(name, data_dir=tmp_path)
    # as Debian does: another container, level and time around the published content
    again = {f"{n}.gz": gzip.compress(c, compresslevel=1, mtime=1) for n, c in IDX[name].items()}
    assert not set(again.values()) & set(ZIPPED[name].values())
    write(tmp_path / "again", again)
    check_idx(data.load(name, data_dir=tmp_path / "again"))


DAMAGE = {
    "cut": lambda content: content[:-9],
    "more": lambda content: content + b"x",
    "empty": lambda _: b"",
    "flip": small.flipped,
    "no gz": lambda _: b"zip?",
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize(
    ("name", "files", "victim"),
    [
        ("mnist", ZIPPED["mnist"], "t10k-labels-idx1-ubyte.gz"),
        ("mnist", IDX["mnist"], "t10k-labels-idx1-ubyte"),
        ("cifar10", CIFAR10, "data_batch_5"),
    ],
    ids=["zipped", "unzipped", "batches"],
)
@pytest.mark.usefixtures("published")
def test_damaged_files(tmp_path, damage, name, files, victim):
    write(tmp_path, files | {victim: DAMAGE[damage](files[victim])})
    with pytest.raises(DataError, match=victim):
        data.load(name, data_dir=tmp_path)


def test_samples_of_ones_own(tmp_path):
    path, rows, labels = tmp_path / "own.npz", np.eye(3, dtype=np.float16), np.array([0, 2, 1])
    parts = {"train_inputs": rows, "train_labels": labels, "test_inputs": rows}
    np.savez(path, **parts, test_labels=labels)
    found = data.load(str(path))
    assert found.classes == 3
    assert found.train_inputs.shape == (3, 1, 1, 3)
    for bad in ({}, {"test_labels": labels[:2]}, {"test_labels": np.array([0.5] * 3)}):
        np.savez(path, **parts, **bad)
        with pytest.raises(DataError):
            data.load(str(path))
    path.write_bytes(b"no zip")
    with pytest.raises(DataError):
        data.load(str(path))


@pytest.mark.usefixtures("published")
def test_cifar10(tmp_path):
    places = {"archive": small.ARCHIVE, "own/cifar-10-batches-py": CIFAR10, "plain": CIFAR10}
    for place, files in places.items():
        write(tmp_path / place, files)
        check_cifar10(data.load("cifar10", data_dir=tmp_path / place.split("/")[0]))
    assert len(list((tmp_path / "archive").iterdir())) == 1  # nothing was unpacked there


CALLED = []


class Hostile:
    def __reduce__(self):
        return CALLED.append, (1,)


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_nothing_in_a_pickle_is_called(protocol):
    content = pickle.dumps({"labels": [1], "data": Hostile()}, protocol=protocol)
    with pytest.raises(ValueError, match="reshape"):  # a file of this digest is never read at all
        data.read_batch(content)
    assert not CALLED
