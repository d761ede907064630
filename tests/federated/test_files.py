"""Files of a data set: where they are looked for, and what is wrong with those that are bad."""

import hashlib

import pytest

from jopeq.errors import DataError
from jopeq.federated import data
from jopeq.federated.download import RemoteFile, checked, download_again, find_folder, read_bytes


def test_own_folder_comes_first(published, tmp_path, idx_files, write, assert_is_small_idx_set):
    own = idx_files.zipped["fashion-mnist"]
    write(tmp_path, dict.fromkeys(own, b"of another data set"))
    write(tmp_path / "fashion-mnist", own)
    assert_is_small_idx_set(data.load("fashion-mnist", data_dir=tmp_path))
    with pytest.raises(DataError, match="cannot be unzipped"):
        data.load("mnist", data_dir=tmp_path)


def test_folders_are_tried_in_their_order(tmp_path, write):
    """The set's own, torchvision's, then the root; a folder of other files is passed over."""
    assert find_folder("mnist", tmp_path, {"images"}) is None
    places = [tmp_path, tmp_path / "MNIST" / "raw", tmp_path / "mnist"]
    for place in places:
        write(place, {"other": b""})
        assert find_folder("mnist", tmp_path, {"images", "labels"}) != place
        write(place, {"labels": b""})
        assert find_folder("mnist", tmp_path, {"images", "labels"}) == place
    assert find_folder("fashion-mnist", tmp_path, {"images", "labels"}) == tmp_path


def test_a_folder_in_place_of_a_file_is_none(tmp_path):
    (tmp_path / "mnist" / "images").mkdir(parents=True)
    assert find_folder("mnist", tmp_path, {"images"}) is None
    with pytest.raises(DataError, match=r"images cannot be read \(.*\): check its permissions"):
        read_bytes(tmp_path / "mnist" / "images")


def test_content_is_given_back_only_with_its_sha256():
    right = hashlib.sha256(b"content").hexdigest()
    assert checked(b"content", right, "here", "try again") == b"content"
    wrong = hashlib.sha256(b"contend").hexdigest()
    with pytest.raises(DataError, match=rf"^here is not .* {wrong}, not {right}\): try again$"):
        checked(b"contend", right, "here", "try again")


def test_the_remedy_names_the_address():
    remedy = download_again(RemoteFile("file", "https://127.0.0.1:9/file", "0", "images"))
    assert remedy.startswith("download https://127.0.0.1:9/file again")
