import numpy as np
import pytest
from PIL import Image

from jopeq.attacks.picture import Column, save_grid


@pytest.mark.parametrize("channels", [1, 3])
def test_a_grid_has_all_pictures(tmp_path, channels):
    draws = np.random.default_rng(0)
    images = draws.random((2, channels, 8, 8))
    found = images.copy()
    found[0, 0, 0, 0] = np.nan
    columns = [Column("raw", found, [1.0, 0.5]), Column("noised", 9 * images, [0.1, 0.2])]
    path = tmp_path / "deep" / "grid.png"
    save_grid(images, columns, path, title="what is left")
    with Image.open(path) as picture:
        assert picture.width > 400
        assert picture.height > 300


def test_bytes_and_fractions_are_drawn_alike(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (1, 3, 8, 8), dtype=np.uint8)
    for name, images in (("a.png", pixels), ("b.png", pixels / 255.0)):
        save_grid(images, [Column("x", images, [1.0])], tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_long_headings_take_nothing_from_the_pictures(tmp_path):
    images = np.random.default_rng(0).random((1, 1, 8, 8))
    heights = []
    for lines in (1, 3, 7):
        path = tmp_path / f"{lines}.png"
        save_grid(images, [Column("\n".join("x" * lines), images, [1.0])], path)
        with Image.open(path) as picture:
            heights.append(picture.height)
    assert heights[0] == heights[1] < heights[2]
