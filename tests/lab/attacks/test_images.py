import numpy as np
import pytest
import torch
from PIL import Image

from jopeq.errors import DataError
from jopeq.lab.attacks.images import PHOTOS, photos, read_images


def saved(path, pixels, mode):
    Image.fromarray(pixels, mode=None).convert(mode).save(path)
    return path


def colours(height=32, width=32):
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def test_a_file_of_the_right_size_is_read_as_it_is(tmp_path):
    pixels = colours()
    (found,) = read_images([saved(tmp_path / "a.png", pixels, "RGB")], (3, 32, 32))
    assert torch.equal(found, torch.from_numpy(pixels.transpose(2, 0, 1) / np.float32(255)))
    for mode, suffix in (("RGBA", "png"), ("P", "png"), ("CMYK", "jpg")):
        (found,) = read_images([saved(tmp_path / f"a.{suffix}", pixels, mode)], (3, 32, 32))
        assert found.shape == (3, 32, 32)


def test_a_larger_one_is_cropped_and_resampled(tmp_path):
    pixels = np.zeros((40, 120, 3), dtype=np.uint8)
    pixels[:, 40:80] = 255  # the middle third is what is left
    (found,) = read_images([saved(tmp_path / "a.png", pixels, "RGB")], (3, 20, 20))
    assert found.shape == (3, 20, 20)
    assert found[:, :, 2:-2].min() > 0.95


@pytest.mark.parametrize("dtype", ["<u2", ">u2", "<i4", "<f4"])
def test_pixels_of_more_than_eight_bits_are_refused(tmp_path, dtype):
    Image.fromarray(np.zeros((8, 8), dtype)).save(tmp_path / "deep.tif")
    with pytest.raises(DataError, match=r"deep\.tif"):
        read_images([tmp_path / "deep.tif"], (1, 8, 8))


def test_a_wrong_channel_count_names_file_and_remedy(tmp_path):
    grey = saved(tmp_path / "grey.png", colours(), "L")
    assert read_images([grey], (1, 8, 8)).shape == (1, 1, 8, 8)
    with pytest.raises(DataError, match=r"grey\.png has 1 channel\(s\) and the model takes 3"):
        read_images([grey], (3, 32, 32))
    with pytest.raises(DataError, match="--shape 3,8,8"):
        read_images([saved(tmp_path / "a.png", colours(), "RGB")], (1, 8, 8))
    with pytest.raises(ValueError, match="1 or 3 channels"):
        read_images([grey], (2, 8, 8))


def test_what_is_no_image_is_named(tmp_path):
    text = tmp_path / "text.png"
    text.write_text("not a picture")
    cut = tmp_path / "cut.png"
    cut.write_bytes(saved(tmp_path / "a.png", colours(), "RGB").read_bytes()[:500])
    for path in (text, cut, tmp_path / "missing.png", tmp_path):
        with pytest.raises(DataError, match=path.name):
            read_images([path], (3, 32, 32))


def test_the_bundled_photographs():
    found = photos()
    assert found.shape == (PHOTOS, 3, 32, 32)
    assert found.dtype == torch.float32
    assert 0 <= found.min() < found.max() <= 1
    assert (found.flatten(1).std(1) > 0.08).all()  # something is on each
    assert len({tuple(image.flatten().tolist()) for image in found}) == PHOTOS
    with pytest.raises(ValueError, match="count"):
        photos(PHOTOS + 1)
