"""What an attack minimizes over images, for many images at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from jopeq.attacks.gradients import GradientMap
from jopeq.attacks.likelihood import Likelihood

_SMOOTH = 1e-3  # pixel differences below it count quadratically in the total variation
_BOX = 10.0  # weight of leaving [0, 1], beside a squared distance of pixels


@dataclass(frozen=True, eq=False, kw_only=True)
class Objective:
    """distance(gradient of the candidate, what was received) + ``variation`` · total variation.

    Parameters
    ----------
    received
        (N, d): the decoded gradients.
    targets
        (N, classes): the labels as probabilities; None when they are sought with the images, the
        last ``classes`` variables then being their logits.
    distance
        "squares": ‖g − ĝ‖²/‖ĝ‖² (DLG, iDLG); "cosine": 1 − cos(g, ĝ) (Geiping et al. 2020);
        "likelihood": −log P of the payload per entry.
    variation
        Weight of the mean absolute difference of neighbouring pixels.
    is_boxed
        Whether pixels outside [0, 1] are penalized.
    """

    gradient_map: GradientMap
    received: torch.Tensor
    targets: torch.Tensor | None
    which: torch.Tensor | None = None
    distance: str = "squares"
    likelihood: Likelihood | None = None
    variation: float = 0.0
    is_boxed: bool = False

    def __len__(self) -> int:
        return len(self.received)

    @property
    def pixels(self) -> int:
        """Entries of an image."""
        channels, height, width = self.gradient_map.input_shape
        return channels * height * width

    @property
    def variables(self) -> int:
        """Entries of a candidate."""
        return self.pixels + (self.gradient_map.classes if self.targets is None else 0)

    def select(self, rows: torch.Tensor) -> Objective:
        """Those images alone."""
        return replace(
            self,
            received=self.received[rows],
            targets=None if self.targets is None else self.targets[rows],
            which=None if self.which is None else self.which[rows],
            likelihood=None if self.likelihood is None else self.likelihood.select(rows),
        )

    def stages(self) -> list[Objective]:
        """What is minimized one after another: a likelihood first as if the noise were Gaussian."""
        rough = None if self.likelihood is None else self.likelihood.as_if_gaussian()
        return [self] if rough is None else [replace(self, likelihood=rough), self]

    def images(self, candidates: torch.Tensor) -> torch.Tensor:
        """(N, C, H, W)"""
        return candidates[:, : self.pixels].reshape(-1, *self.gradient_map.input_shape)

    def evaluate(self, candidates: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Losses (N,) and their gradients (N, variables)."""
        candidates = candidates.detach().requires_grad_()
        losses = self(candidates)
        (gradient,) = torch.autograd.grad(losses.sum(), candidates)
        return losses.detach(), gradient

    def __call__(self, candidates: torch.Tensor) -> torch.Tensor:
        """Losses (N,), differentiable."""
        images = self.images(candidates)
        targets = self.targets
        if targets is None:
            targets = candidates[:, self.pixels :].softmax(1)
        losses = self._distance(self.gradient_map(images, targets, self.which))
        if self.variation:
            losses = losses + self.variation * total_variation(images)
        if self.is_boxed:
            outside = images - images.clamp(0.0, 1.0)
            losses = losses + _BOX * outside.square().flatten(1).mean(1)
        return losses

    def _distance(self, gradients: torch.Tensor) -> torch.Tensor:
        if self.distance == "likelihood":
            if self.likelihood is None:
                raise TypeError("distance 'likelihood' needs a likelihood")
            return self.likelihood(gradients)
        energy = self.received.square().sum(1).clamp(min=1e-30)
        if self.distance == "squares":
            return (gradients - self.received).square().sum(1) / energy
        product = (gradients * self.received).sum(1)
        norm = gradients.square().sum(1).clamp(min=1e-30).sqrt()
        return 1.0 - product / (norm * energy.sqrt())


def total_variation(images: torch.Tensor) -> torch.Tensor:
    """Mean absolute difference of neighbouring pixels (N,), rounded at 0.

    >>> total_variation(torch.tensor([[[[0.0, 1.0], [0.0, 1.0]]]])).round(decimals=2)
    tensor([0.5000])
    """

    def rounded(differences: torch.Tensor) -> torch.Tensor:
        return (torch.sqrt(differences.square() + _SMOOTH**2) - _SMOOTH).flatten(1)

    across = rounded(images[..., 1:] - images[..., :-1])
    down = rounded(images[..., 1:, :] - images[..., :-1, :])
    return torch.cat((across, down), 1).mean(1)
