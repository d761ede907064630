import numpy as np
import pytest

from jopeq.attacks.compare import read_npz, write_npz
from jopeq.errors import DataError


def test_arrays_come_back_and_are_replaced_whole(tmp_path):
    path = tmp_path / "deep" / "kept.npz"
    write_npz(path, a=np.arange(3), b=np.array("ε"))
    a, b = read_npz(path, "a", "b")
    assert a.tolist() == [0, 1, 2]
    assert str(b) == "ε"
    before = path.read_bytes()

    class Broken:
        def __array__(self, *_, **__):
            raise RuntimeError("no array")

    with pytest.raises(RuntimeError, match="no array"):
        write_npz(path, a=Broken())
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_spoilt_files_are_named_with_the_remedy(tmp_path):
    path = tmp_path / "kept.npz"
    write_npz(path, a=np.arange(1000))
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    for content in (b"", b"nothing", whole[: len(whole) // 2], bytes(flipped)):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"kept\.npz cannot be read .*delete it"):
            read_npz(path, "a")


def test_what_is_missing_is_named(tmp_path):
    path = tmp_path / "kept.npz"
    with pytest.raises(DataError, match="cannot be read"):
        read_npz(path, "a")
    write_npz(path, a=np.arange(3))
    with pytest.raises(DataError, match="b is not a file in the archive"):
        read_npz(path, "a", "b")
    with path.open("wb") as file:
        np.save(file, np.arange(3))  # an .npy under that name
    with pytest.raises(DataError, match="cannot be read"):
        read_npz(path, "a")
