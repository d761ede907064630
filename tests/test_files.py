import os
import re
import signal
import stat
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from jopeq import files
from jopeq.files import alone, atomic, check_own_file, own_folder

posix = pytest.mark.skipif(os.name != "posix", reason="permissions and locks are POSIX's")


@pytest.fixture
def umask():
    """Sets the umask for one test."""
    before = os.umask(0o022)
    yield os.umask
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


@pytest.mark.parametrize("trouble", ["interrupt", "replace", "fsync"])
def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch, trouble):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(*_):
        raise OSError("no space left on device")

    def fail():
        with atomic(path) as file:
            file.write(b"new")
            if trouble == "interrupt":
                raise KeyboardInterrupt

    if trouble != "interrupt":
        monkeypatch.setattr(os, trouble, full)
    with pytest.raises((KeyboardInterrupt, OSError)):
        fail()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_nobody_elses_part_is_overwritten_or_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "urandom", bytes)
    with atomic(tmp_path / "file") as file:
        file.write(b"first")
        with pytest.raises(FileExistsError), atomic(tmp_path / "file"):
            pass
    assert (tmp_path / "file").read_bytes() == b"first"


@posix
def test_the_next_writer_removes_what_a_killed_one_left(tmp_path):
    """Of the same file only, and not the part of a writer who is still at work."""
    code = (
        "import os, pathlib, signal, sys\n"
        "from jopeq.files import atomic\n"
        "with atomic(pathlib.Path(sys.argv[1])) as file:\n"
        "    file.write(b'half'), file.flush()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    for name in ("file", "file.12345678", "other"):
        killed = subprocess.run([sys.executable, "-c", code, tmp_path / name], check=False)
        assert killed.returncode == -signal.SIGKILL
    mine = re.compile(r"\.file\.(?!12345678\.)")
    left = [name for name in os.listdir(tmp_path) if not mine.match(name)]
    with atomic(tmp_path / "file") as live:
        live.write(b"live")
        with atomic(tmp_path / "file") as second:
            second.write(b"second")
        assert (tmp_path / "file").read_bytes() == b"second"
    assert (tmp_path / "file").read_bytes() == b"live"
    assert sorted(os.listdir(tmp_path)) == sorted([*left, "file"])


@posix
def test_a_part_swept_before_it_was_locked_is_made_anew(tmp_path, monkeypatch):
    lock, locked = files.fcntl.flock, []

    def sweep_first(file, how):
        if not locked:
            os.unlink(file.name)
        locked.append(lock(file, how))

    monkeypatch.setattr(files.fcntl, "flock", sweep_first)
    with atomic(tmp_path / "file") as file:
        file.write(b"whole")
    assert len(locked) == 2
    assert (tmp_path / "file").read_bytes() == b"whole"


@posix
def test_own_folders_are_made_for_their_owner_alone(tmp_path, umask):
    umask(0o000)
    made = own_folder(tmp_path / "new" / "folder")
    for folder in (made, made.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert own_folder(made) == made
    (tmp_path / "link").symlink_to(made)
    assert own_folder(tmp_path / "link") == made.resolve()


@posix
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_folders_others_can_write_to_are_refused(tmp_path, mode):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    refused = pytest.raises(PermissionError, match="open")
    with refused:
        own_folder(folder)
    # sticky: what lies in it cannot be exchanged by others
    with nullcontext() if mode == 0o1777 else refused:
        assert own_folder(folder / "below").is_dir()


@posix
@pytest.mark.parametrize("below", ["", "below"])
def test_folders_of_another_user_are_refused(tmp_path, monkeypatch, below):
    (tmp_path / below).mkdir(exist_ok=True)
    found, foreign = Path.lstat, tmp_path.resolve()

    def stat_of(path, **options):
        status = found(path, **options)
        fields = list(status)
        fields[stat.ST_UID] = 12345 if path == foreign else os.geteuid()
        return os.stat_result(fields)

    monkeypatch.setattr(Path, "lstat", stat_of)
    with pytest.raises(PermissionError, match=f"{tmp_path.name} belongs to another user: choose"):
        own_folder(tmp_path / below)


@posix
def test_a_link_in_place_of_a_new_folder_is_refused(tmp_path, monkeypatch):
    """Somebody else's link appears between the look at the path and the making of the folder."""
    (tmp_path / "theirs").mkdir()
    make = Path.mkdir

    def late(folder, *arguments, **options):
        folder.symlink_to(tmp_path / "theirs")
        make(folder, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", late)
    with pytest.raises(PermissionError, match="ours"):
        own_folder(tmp_path / "ours")


@posix
def test_locks_follow_no_links_and_empty_nothing(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("content")
    (tmp_path / "lock").symlink_to(precious)
    with pytest.raises(OSError, match="lock"), alone(tmp_path / "lock"):
        pass
    with alone(precious):
        pass
    assert precious.read_text() == "content"
    with alone(tmp_path / "new"):
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600  # nobody else can hold it


@posix
@pytest.mark.parametrize(
    ("mode", "folder", "is_trusted"),
    [
        *((*modes, True) for modes in ((0o600, 0o700), (0o644, 0o755))),
        *((mode, 0o700, False) for mode in (0o620, 0o602)),
        *((0o600, folder, False) for folder in (0o777, 0o770)),
    ],
)
def test_files_that_others_can_exchange_are_not_trusted(tmp_path, mode, folder, is_trusted):
    path = tmp_path / "inside" / "file"
    path.parent.mkdir()
    path.touch()
    path.chmod(mode)
    path.parent.chmod(folder)
    with nullcontext() if is_trusted else pytest.raises(PermissionError, match="others can write"):
        check_own_file(path)
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(PermissionError, match="no plain file"):
        check_own_file(tmp_path / "link")


@posix
def test_permissions_are_the_umasks_or_fewer(tmp_path, umask):
    umask(0o022)
    for mode, expected in ((None, 0o644), (0o600, 0o600)):
        path = tmp_path / f"{mode}"
        path.write_bytes(b"old")
        path.chmod(0o666)  # those of the old file do not count
        with atomic(path) if mode is None else atomic(path, mode=mode) as file:
            assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == expected  # from the first byte
        assert stat.S_IMODE(path.stat().st_mode) == expected
