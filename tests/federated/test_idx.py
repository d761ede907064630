"""MNIST and Fashion-MNIST from small idx files, sound and damaged."""

import gzip

import pytest

from jopeq.errors import DataError
from jopeq.federated import data, download


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("is_zipped", [True, False])
@pytest.mark.parametrize("place", ["", "own", "torchvision"])
def test_idx_sets(
    published, tmp_path, name, is_zipped, place, idx_files, write, assert_is_small_idx_set
):
    torchvision = {"mnist": "MNIST/raw", "fashion-mnist": "FashionMNIST/raw"}[name]
    folder = tmp_path / {"": "", "own": name, "torchvision": torchvision}[place]
    write(folder, (idx_files.zipped if is_zipped else idx_files.unzipped)[name])
    loaded = data.load(name, data_dir=str(tmp_path))
    assert loaded.name == name
    assert_is_small_idx_set(loaded)


@pytest.mark.parametrize("damage", ["cut", "more", "empty", "flip", "no gz"])
@pytest.mark.parametrize("victim", ["train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"])
@pytest.mark.parametrize("is_zipped", [True, False])
def test_damaged_files(published, tmp_path, damage, victim, is_zipped, idx_files, write, flip):
    files = (idx_files.zipped if is_zipped else idx_files.unzipped)["mnist"]
    victim += ".gz" if is_zipped else ""
    content = files[victim]
    changed = {
        "cut": content[:-9],
        "more": content + b"x",
        "empty": b"",
        "flip": flip(content),
        "no gz": b"zip?",
    }[damage]
    write(tmp_path, files | {victim: changed})
    expected = rf"{victim} (cannot be unzipped|is not MNIST's .* but truncated, damaged or another)"
    with pytest.raises(DataError, match=expected) as caught:
        data.load("mnist", data_dir=tmp_path)
    assert "download https" in str(caught.value)


def test_files_zipped_again_are_the_same_files(
    published, tmp_path, idx_files, write, assert_is_small_idx_set
):
    """As Debian does: another container, level and time around the published content."""
    again = {
        f"{name}.gz": gzip.compress(content, compresslevel=1, mtime=1)
        for name, content in idx_files.unzipped["fashion-mnist"].items()
    }
    assert not set(again.values()) & set(idx_files.zipped["fashion-mnist"].values())
    write(tmp_path, again)
    assert_is_small_idx_set(data.load("fashion-mnist", data_dir=tmp_path))


@pytest.mark.parametrize("is_zipped", [True, False])
@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("mnist", "fashion-mnist", "is Fashion-MNIST's training images, not MNIST's training im"),
        ("fashion-mnist", "mnist", "is MNIST's training images, not Fashion-MNIST's training im"),
    ],
)
def test_another_data_set_is_named_and_refused(
    published, tmp_path, name, given, message, is_zipped, idx_files, write
):
    write(tmp_path, (idx_files.zipped if is_zipped else idx_files.unzipped)[given])
    with pytest.raises(DataError, match=rf"train-images-idx3-ubyte(\.gz)? {message}"):
        data.load(name, data_dir=tmp_path)


def test_files_that_changed_places_are_named(published, tmp_path, idx_files, write):
    files = idx_files.unzipped["mnist"]
    train, test = "train-labels-idx1-ubyte", "t10k-labels-idx1-ubyte"
    write(tmp_path, files | {train: files[test], test: files[train]})
    with pytest.raises(DataError, match=rf"{train} is MNIST's test labels, not MNIST's training l"):
        data.load("mnist", data_dir=tmp_path)


def test_a_bomb_is_unzipped_no_further_than_any_file_goes(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "_LARGEST", 1000)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(1_000_000)))
    assert len(download.unzipped(tmp_path / "bomb.gz")) == 1000
