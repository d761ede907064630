import os
import stat
import subprocess
import sys

import pytest

from jopeq.whole_files import atomic


@pytest.fixture
def usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_a_file_appears_when_it_is_whole(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with atomic(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail():
        with atomic(path) as file:
            file.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("name", ["replace", "fsync"])
def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch, name):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, name, full)
    with pytest.raises(OSError, match="no space left"), atomic(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_nobody_elses_part_is_overwritten_or_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "urandom", bytes)
    with atomic(tmp_path / "file") as file:
        file.write(b"first")
        with pytest.raises(FileExistsError), atomic(tmp_path / "file"):
            pass
    assert (tmp_path / "file").read_bytes() == b"first"


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_permissions_are_the_umasks_or_fewer(tmp_path, usual_umask):
    for mode, expected in ((None, 0o644), (0o600, 0o600)):
        path = tmp_path / f"{mode}"
        path.write_bytes(b"old")
        path.chmod(0o666)  # those of the old file do not count
        with atomic(path) if mode is None else atomic(path, mode=mode) as file:
            assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == expected  # from the first byte
        assert stat.S_IMODE(path.stat().st_mode) == expected


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"), atomic(tmp_path / "nowhere" / "file"):
        pass


def test_torch_is_not_needed():
    code = "import sys, jopeq.whole_files; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
