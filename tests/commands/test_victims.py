import numpy as np
import pytest
from PIL import Image

from jopeq.attacks.images import photos
from jopeq.commands.victims import choose_victims


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
