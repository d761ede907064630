import math

import numpy as np
import pytest
import torch

from jopeq_lab.attacks.similarity import recovered_fraction, scores


def pair(shape, seed=0):
    draws = np.random.default_rng(seed)
    one = draws.random(shape)
    return torch.from_numpy(one), torch.from_numpy(np.clip(one + draws.normal(0, 0.2, shape), 0, 1))


@pytest.mark.parametrize("shape", [(3, 3, 32, 32), (2, 1, 8, 8), (1, 4, 9, 17), (1, 1, 7, 7)])
def test_ssim_and_psnr_are_those_of_scikit_image(shape):
    metrics = pytest.importorskip("skimage.metrics")
    one, two = pair(shape)
    found = scores(two, one)
    for row, images in enumerate(zip(one.numpy(), two.numpy(), strict=True)):
        ssim_of = metrics.structural_similarity(*images, channel_axis=0, data_range=1.0)
        psnr_of = metrics.peak_signal_noise_ratio(*images, data_range=1.0)
        assert found.ssim[row].item() == pytest.approx(ssim_of, rel=1e-9)
        assert found.psnr[row].item() == pytest.approx(psnr_of, rel=1e-9)


def test_reconstructions_are_clipped_and_nan_is_black():
    original = torch.zeros(1, 1, 8, 8)
    assert scores(torch.full((1, 1, 8, 8), math.nan), original).mse.item() == 0.0
    assert scores(torch.full((1, 1, 8, 8), 1e9), original).mse.item() == 1.0
    assert scores(original, original).psnr.item() == math.inf


def test_only_what_was_found_with_an_ssim_above_one_half_counts():
    assert recovered_fraction(torch.tensor([0.5, 0.51, -0.1, 1.0])).hits == 2
    alike = torch.tensor([0.9, 0.9, 0.1])
    assert recovered_fraction(alike, ["spent", "not recovered", "converged"]).hits == 1
    with pytest.raises(ValueError, match="status"):
        recovered_fraction(alike, ["spent"])
