import os
from pathlib import Path

import numpy as np
import pytest

from jopeq.cli.attack import check_out


@pytest.fixture
def photo(tmp_path):
    path = tmp_path / "mine.png"
    path.write_bytes(b"a photograph")
    return path


def contents(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("*"))


def test_a_new_place_is_fine_and_stays_empty(tmp_path, photo):
    check_out(tmp_path / "a" / "b" / "grid.png", [photo])
    assert contents(tmp_path) == [Path("mine.png")]


@pytest.mark.parametrize("link", [None, Path.symlink_to, Path.hardlink_to])
def test_the_image_itself_is_refused(tmp_path, photo, link):
    out = photo
    if link is not None:
        out = tmp_path / "link.png"
        link(out, photo)
    with pytest.raises(ValueError, match=r"--out .* would overwrite .*--image"):
        check_out(out, [photo])
    with pytest.raises(ValueError, match="would overwrite"):
        check_out(photo, [out])


def test_the_image_under_the_name_of_what_is_kept_is_refused(tmp_path):
    image = tmp_path / "mine.npz"
    image.write_bytes(b"a photograph of an odd name")
    with pytest.raises(ValueError, match="would overwrite"):
        check_out(tmp_path / "mine.png", [image])


def test_an_unrelated_file_beside_the_picture_is_refused(tmp_path):
    np.savez(tmp_path / "data.npz", images=np.zeros(3))
    with pytest.raises(ValueError, match=r"--out .*data\.png would replace .*data\.npz"):
        check_out(tmp_path / "data.png")
    (tmp_path / "text.npz").write_text("text")
    with pytest.raises(ValueError, match="would replace"):
        check_out(tmp_path / "text.png")


def test_a_file_of_this_command_may_be_replaced(tmp_path):
    arrays = dict.fromkeys(("fingerprint", "gradients", "facts", "images"), np.zeros(1))
    np.savez(tmp_path / "grid.npz", **arrays)
    check_out(tmp_path / "grid.png")


@pytest.mark.parametrize("name", ["folder.png", "kept.png", "file/x.png", "x" * 300 + ".png"])
def test_what_cannot_be_written_is_refused(tmp_path, name):
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "kept.npz").mkdir()
    (tmp_path / "file").write_text("no folder")
    before = contents(tmp_path)
    with pytest.raises(ValueError, match="--out"):
        check_out(tmp_path / name)
    assert contents(tmp_path) == before


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="a folder where even root may not write")
def test_an_unwritable_folder_is_refused():
    with pytest.raises(ValueError, match=r"--out /proc/x/a\.png cannot be written"):
        check_out(Path("/proc/x/a.png"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(ValueError, match="cannot be written"):
        check_out(tmp_path / "a.png")
