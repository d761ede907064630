import pytest
import torch

from jopeq.lab.attacks.images import PHOTOS, photos


def test_the_bundled_photographs():
    found = photos()
    assert found.shape == (PHOTOS, 3, 32, 32)
    assert found.dtype == torch.float32
    assert 0 <= found.min() < found.max() <= 1
    assert (found.flatten(1).std(1) > 0.08).all()  # something is on each
    assert len({tuple(image.flatten().tolist()) for image in found}) == PHOTOS
    with pytest.raises(ValueError, match="count"):
        photos(PHOTOS + 1)
