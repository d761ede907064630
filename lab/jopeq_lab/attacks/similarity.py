"""Measure reconstructions: MSE, PSNR, SSIM, and the fraction of images recovered.

Pixels are numbers in [0, 1]; reconstructions are clipped to it first, and ``data_range`` is 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

RECOVERED = 0.5  # an SSIM above it counts as recovered
NOT_RECOVERED = "not recovered"  # the status of an image for which an attack found nothing
_WINDOW = 7
_K1, _K2 = 0.01, 0.03


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of each image (N,), on the CPU in double precision."""

    mse: torch.Tensor
    psnr: torch.Tensor  # dB, of a peak of 1; inf for a perfect copy
    ssim: torch.Tensor


@dataclass(frozen=True)
class Fraction:
    """A proportion and its 95% confidence interval (Wilson)."""

    hits: int
    total: int
    low: float
    high: float

    @property
    def value(self) -> float:
        return self.hits / self.total if self.total else math.nan

    def __str__(self) -> str:
        return f"{100 * self.value:.0f}% ({100 * self.low:.0f}–{100 * self.high:.0f}%)"


def scores(reconstructions: torch.Tensor, originals: torch.Tensor) -> Scores:
    """All scores of images (N, C, H, W); a pixel that is not finite counts as black."""
    if reconstructions.shape != originals.shape or originals.ndim != 4:
        raise ValueError(
            "reconstructions and originals must both be (N, C, H, W), got "
            f"{tuple(reconstructions.shape)} and {tuple(originals.shape)}"
        )
    found = reconstructions.detach().double().cpu().nan_to_num(0.0, 0.0, 0.0).clamp(0.0, 1.0)
    wanted = originals.detach().double().cpu()
    mse = (found - wanted).square().flatten(1).mean(1)
    return Scores(mse, -10.0 * torch.log10(mse), ssim(found, wanted))


def ssim(one: torch.Tensor, two: torch.Tensor, data_range: float = 1.0) -> torch.Tensor:
    """Structural similarity (Wang et al. 2004) of each image (N,).

    The definition of ``skimage.metrics.structural_similarity`` with its defaults (uniform windows
    of 7×7 pixels, or the largest odd size that fits; sample covariances; K1 = 0.01, K2 = 0.03),
    averaged over channels, for many images at once.

    >>> image = torch.rand(1, 3, 16, 16, dtype=torch.float64)
    >>> ssim(image, image)
    tensor([1.], dtype=torch.float64)
    """
    side = min(one.shape[-2:])
    window = min(_WINDOW, side if side % 2 else side - 1)
    if window < 3:
        raise ValueError(f"SSIM needs images of at least 3×3 pixels, got {tuple(one.shape[-2:])}")

    def mean(values: torch.Tensor) -> torch.Tensor:
        return functional.avg_pool2d(values, window, stride=1)

    points = window * window
    mean_one, mean_two = mean(one), mean(two)
    unbiased = points / (points - 1)
    var_one = unbiased * (mean(one * one) - mean_one * mean_one)
    var_two = unbiased * (mean(two * two) - mean_two * mean_two)
    covariance = unbiased * (mean(one * two) - mean_one * mean_two)
    c1, c2 = (_K1 * data_range) ** 2, (_K2 * data_range) ** 2
    luminance = (2 * mean_one * mean_two + c1) / (mean_one.square() + mean_two.square() + c1)
    structure = (2 * covariance + c2) / (var_one + var_two + c2)
    return (luminance * structure).flatten(1).mean(1)


def measure_fraction(hits: int, total: int) -> Fraction:
    """The proportion with its interval.

    >>> print(measure_fraction(6, 6))
    100% (61–100%)
    """
    from scipy import stats

    if not 0 <= hits <= total or total < 1:
        raise ValueError(f"hits must be from 0 to total ≥ 1, got {hits} of {total}")
    interval = stats.binomtest(hits, total).proportion_ci(method="wilson")
    return Fraction(hits, total, float(interval.low), float(interval.high))


def recovered_fraction(similarities: torch.Tensor, status: Sequence[str] | None = None) -> Fraction:
    """Count the images with an SSIM above 0.5.

    An image whose ``status`` says that nothing was found does not count, even if the plain grey
    shown instead resembles the original.

    >>> recovered_fraction(torch.tensor([0.9, 0.9]), ["stalled", "not recovered"]).hits
    1
    """
    hits = similarities > RECOVERED
    if status is not None:
        if len(status) != len(similarities):
            raise ValueError(
                f"status must have one entry per image, got {len(status)} for {len(similarities)}"
            )
        hits = hits & torch.tensor([one != NOT_RECOVERED for one in status], device=hits.device)
    return measure_fraction(int(hits.sum()), len(similarities))
