"""MNIST and Fashion-MNIST from small idx files, sound and damaged."""

import hashlib
from dataclasses import replace

import pytest

from jopeq.errors import DataError
from jopeq.federated import data


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("is_zipped", [True, False])
@pytest.mark.parametrize("place", ["", "own", "torchvision"])
def test_idx_sets(
    published, tmp_path, name, is_zipped, place, idx_files, write, assert_is_small_idx_set
):
    torchvision = {"mnist": "MNIST/raw", "fashion-mnist": "FashionMNIST/raw"}[name]
    folder = tmp_path / {"": "", "own": name, "torchvision": torchvision}[place]
    write(folder, idx_files.zipped if is_zipped else idx_files.raw)
    loaded = data.load(name, data_dir=str(tmp_path))
    assert loaded.name == name
    assert_is_small_idx_set(loaded)


@pytest.mark.parametrize("damage", [lambda c: c[:-9], lambda c: c + b"x", lambda c: b"", "flip"])
@pytest.mark.parametrize("victim", ["train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"])
def test_damaged_gz(published, tmp_path, damage, victim, idx_files, write, flip):
    content = idx_files.zipped[victim]
    changed = flip(content) if damage == "flip" else damage(content)
    write(tmp_path, idx_files.zipped | {victim: changed})
    with pytest.raises(DataError, match=rf"{victim} has MD5 .* where the published file has .*do"):
        data.load("mnist", data_dir=tmp_path)


def test_gz_that_is_none(published, tmp_path, monkeypatch, write):
    files = tuple(
        replace(file, md5=hashlib.md5(b"zip?").hexdigest()) for file in data.PUBLISHED["mnist"]
    )
    monkeypatch.setitem(data.PUBLISHED, "mnist", files)
    write(tmp_path, {file.name: b"zip?" for file in files})
    with pytest.raises(DataError, match="cannot be unzipped"):
        data.load("mnist", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("position", "content", "message"),
    [
        (0, lambda of: of.raw[of.names[0]][:-1], r"has 1215 bytes where its header announces 1216"),
        (
            0,
            lambda of: of.raw[of.names[0]] + b"x",
            r"has 1217 bytes where its header announces 1216",
        ),
        (0, lambda of: b"", "must begin with the bytes 00000803, it begins with nothing"),
        (0, lambda of: b"\0\0\x08\x03\0", "has 5 bytes where"),
        (
            0,
            lambda of: b"\0\0\x08\x03" + b"\xff" * 12,
            "has 16 bytes where its header announces 7922816",
        ),
        (
            0,
            lambda of: of.raw[of.names[1]],
            "must begin with the bytes 00000803, it begins with 00000801",
        ),
        (
            1,
            lambda of: of.raw[of.names[0]],
            "must begin with the bytes 00000801, it begins with 00000803",
        ),
        (
            1,
            lambda of: of.encode(of.arrays[1][:-1]),
            "train-labels-idx1-ubyte .*holds 59 labels up to 9 for 60 images",
        ),
        (
            3,
            lambda of: of.encode(of.arrays[3] + 1),
            "t10k-labels-idx1-ubyte .*holds 20 labels up to 10",
        ),
        (2, lambda of: of.encode(of.draw(20, 4, 4)), "differ in size"),
    ],
)
def test_damaged_idx(published, tmp_path, position, content, message, idx_files, write):
    write(tmp_path, idx_files.raw | {idx_files.names[position]: content(idx_files)})
    with pytest.raises(DataError, match=message) as caught:
        data.load("mnist", data_dir=tmp_path)
    assert "download http" in str(caught.value)
