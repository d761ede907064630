"""Data sets by name: from a folder, the cache or the network; their checks and splits."""

import numpy as np
import pytest
import torch

from jopeq.errors import DataError
from jopeq.federated import data


def test_bundled_sets():
    pytest.importorskip("sklearn")
    digits = data.load("digits", cache_dir="/nowhere", download=False)
    assert digits.train_inputs.shape == (1442, 1, 8, 8)
    assert digits.test_labels.shape == (355,)
    assert digits.classes == 10
    again = data.load("digits")
    assert torch.equal(digits.train_inputs, again.train_inputs)


# Cache and download


@pytest.mark.parametrize("how", ["argument", "JOPEQ_CACHE", "XDG_CACHE_HOME", "home"])
def test_cache_folders(
    published,
    tmp_path,
    monkeypatch,
    how,
    idx_files,
    cifar_files,
    write,
    assert_is_small_idx_set,
    assert_is_small_cifar10,
):
    for variable in ("JOPEQ_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    arguments = {}
    if how == "argument":
        monkeypatch.setenv("JOPEQ_CACHE", str(tmp_path / "not this"))
        folder = arguments["cache_dir"] = tmp_path / "cache"
    elif how == "JOPEQ_CACHE":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "not this"))
        monkeypatch.setenv("JOPEQ_CACHE", "~/mine")
        folder = tmp_path / "home" / "mine"
    elif how == "XDG_CACHE_HOME":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        folder = tmp_path / "xdg" / "jopeq"
    else:
        folder = tmp_path / "home" / ".cache" / "jopeq"
    write(folder / "mnist", idx_files.zipped["mnist"])
    write(folder / "cifar10", cifar_files.archive)
    assert_is_small_idx_set(data.load("mnist", download=False, **arguments))
    assert_is_small_cifar10(data.load("cifar10", download=False, **arguments))


def test_downloads_into_the_cache(
    published,
    tmp_path,
    monkeypatch,
    idx_files,
    cifar_files,
    write,
    assert_is_small_idx_set,
    assert_is_small_cifar10,
):
    contents, asked, steps = idx_files.zipped["fashion-mnist"] | cifar_files.archive, [], []

    def fetch(remote, folder, progress):
        asked.append(remote.name)
        write(folder, {remote.name: contents[remote.name]})
        progress(1, 1)

    monkeypatch.setattr(data, "fetch", fetch)
    progress = lambda *step: steps.append(step)  # noqa: E731
    assert_is_small_idx_set(data.load("fashion-mnist", cache_dir=tmp_path, progress=progress))
    assert asked == [f"{name}.gz" for name in idx_files.names]
    assert_is_small_cifar10(data.load("cifar10", cache_dir=tmp_path, progress=progress))
    assert len(steps) == 5


def test_bundled_data_sets_read_no_folder(tmp_path):
    for name in ("digits", "mnist5k"):
        with pytest.raises(ValueError, match=rf"{name}.*leave it out, or name one of mnist,"):
            data.load(name, data_dir=tmp_path)


def test_data_dir_is_never_left(published, tmp_path, idx_files, write):
    """Whoever names a folder wants its files: neither cache nor network takes their place."""
    write(tmp_path / "cache" / "mnist", idx_files.zipped["mnist"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty lacks train-images-idx3-ubyte.gz: download http"):
        data.load("mnist", data_dir=tmp_path / "empty", cache_dir=tmp_path / "cache")


def test_missing(published, tmp_path, idx_files, cifar_files, write):
    with pytest.raises(DataError, match=r"data_dir .*nowhere is not a folder"):
        data.load("mnist", data_dir=tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"lacks train-images-idx3-ubyte\.gz.*download=True"):
        data.load("mnist", cache_dir=tmp_path, download=False)
    with pytest.raises(DataError, match=r"neither cifar-10-batches-py nor cifar-10-python\.tar"):
        data.load("cifar10", data_dir=tmp_path)
    for missing in idx_files.names:
        folder = tmp_path / missing
        write(folder, {n: c for n, c in idx_files.zipped["mnist"].items() if missing not in n})
        with pytest.raises(DataError, match=rf"lacks {missing}\.gz: download http"):
            data.load("mnist", data_dir=folder)
    write(
        tmp_path / "batches", {n: c for n, c in cifar_files.batches.items() if n != "data_batch_3"}
    )
    with pytest.raises(DataError, match="batches lacks data_batch_3"):
        data.load("cifar10", data_dir=tmp_path / "batches")


# Data sets of one's own, and their splits


def dataset(count=60, **changes):
    fields = {
        "name": "mine",
        "train_inputs": torch.arange(count * 4, dtype=torch.float32).reshape(count, 1, 2, 2),
        "train_labels": torch.arange(count) % 10,
        "test_inputs": torch.zeros(3, 1, 2, 2),
        "test_labels": torch.zeros(3, dtype=torch.int64),
        "classes": 10,
    }
    return data.Dataset(**fields | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_inputs": torch.zeros(60, 4)}, "train_inputs must be"),
        ({"test_inputs": torch.zeros(3, 1, 2, 3)}, "test_inputs must be"),
        ({"test_inputs": torch.zeros(3, 1, 2, 2).double()}, "must be float32"),
        ({"train_labels": torch.zeros(60)}, "train_labels int64"),
        ({"train_labels": torch.zeros(59, dtype=torch.int64)}, r"must have shape \(60,\)"),
        ({"classes": 9}, "from 0 to classes - 1 = 8"),
        ({"test_labels": torch.tensor([0, -1, 0])}, "test_labels must be from 0"),
    ],
)
def test_datasets_are_checked(changes, message):
    with pytest.raises(ValueError, match=message):
        dataset(**changes)


def test_datasets_are_frozen():
    with pytest.raises(AttributeError):
        dataset().name = "other"


@pytest.mark.parametrize("count", [0, 1, 10, 59, np.int64(7)])
def test_split_validation(count):
    mine = dataset()
    inputs, labels, held_inputs, held_labels = data.split_validation(mine, count, seed=4)
    assert len(held_inputs) == len(held_labels) == count
    both = torch.cat((inputs, held_inputs))
    order = both[:, 0, 0, 0].argsort()
    assert torch.equal(both[order], mine.train_inputs)
    assert torch.equal(torch.cat((labels, held_labels))[order], mine.train_labels)


def test_split_validation_by_seed():
    mine = dataset(600)
    one, same, other = (data.split_validation(mine, seed=seed)[2] for seed in (1, 1, 2))
    assert len(one) == 100
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_split_validation_default_is_the_papers():
    labels = torch.zeros(60_000, dtype=torch.int64)
    large = dataset(train_inputs=torch.zeros(60_000, 1, 2, 2), train_labels=labels)
    assert [len(part) for part in data.split_validation(large)] == [50_000, 50_000, 10_000, 10_000]


@pytest.mark.parametrize("count", [-1, 60, 1.5, True, "10"])
def test_split_validation_errors(count):
    with pytest.raises(ValueError, match="validation count must be an integer from 0 to 59"):
        data.split_validation(dataset(), count)


def test_unknown_names():
    with pytest.raises(ValueError, match="one of digits, mnist5k, mnist, fashion-mnist, cifar10"):
        data.load("imagenet")
