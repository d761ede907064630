import numpy as np
import pytest
from PIL import Image

from jopeq.attacks.images import photos
from jopeq.cli.attack import choose_victims
from jopeq.errors import DataError


def chosen(**given):
    names = ("files", "labels", "shape", "data", "data_dir", "images", "classes")
    return choose_victims(**{**dict.fromkeys(names), **given}, show=False)


def test_photographs_are_what_is_attacked_without_a_word():
    images, labels, classes = chosen()
    assert images.equal(photos())
    assert labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert classes == 10
    assert len(chosen(images=2, data="photos")[0]) == 2


def test_a_data_set_has_its_own_labels_and_classes():
    images, labels, classes = chosen(data="digits", images=3)
    assert images.shape == (3, 1, 8, 8)
    assert len(labels) == 3
    assert classes == 10


def test_files_are_numbered_through_the_classes(tmp_path):
    path = tmp_path / "grey.png"
    Image.fromarray(np.zeros((9, 9), dtype=np.uint8)).save(path)
    images, labels, classes = chosen(files=[path] * 3, shape="1,8,8", classes=2)
    assert images.shape == (3, 1, 8, 8)
    assert labels.tolist() == [0, 1, 0]
    assert classes == 2
    with pytest.raises(ValueError, match="once for each of 3 images"):
        chosen(files=[path] * 3, shape="1,8,8", labels=[1])
    with pytest.raises(ValueError, match="at least 0, got -1"):
        chosen(files=[path], shape="1,8,8", labels=[-1])


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ("3,³,3", "C,H,W such as"),
        ("3,32", "C,H,W such as"),
        ("3,-8,8", "C,H,W such as"),
        (f"3,{'9' * 5000},8", "C,H,W such as"),
        ("3,2,2", "at least 3 pixels"),
        ("1,0,8", "at least 3 pixels"),
        ("2,8,8", "1 .grey. or 3"),
        ("3,20000,20000", "at most 1,048,576 pixels"),
    ],
)
def test_a_bad_shape_is_told_before_files_are_read(tmp_path, shape, words):
    with pytest.raises(ValueError, match=f"--shape must .*{words}"):
        chosen(files=[tmp_path / "nowhere.png"], shape=shape)


def test_there_must_be_as_many_images_as_are_asked_for():
    with pytest.raises(ValueError, match=r"--images must be at most 1442, .* digits, got 60000"):
        chosen(data="digits", images=60000)
    with pytest.raises(ValueError, match=r"--images must be at most 6, .* got 7"):
        chosen(images=7)


def test_a_huge_picture_is_refused_without_a_warning(tmp_path):
    path = tmp_path / "huge.png"
    Image.new("1", (9500, 10000)).save(path)
    with pytest.raises(DataError, match="shrink it"):  # and any warning fails the test
        chosen(files=[path])
