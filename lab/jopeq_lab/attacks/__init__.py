"""Gradient inversion: what a server could see of a client's images, scheme by scheme.

>>> import torch, jopeq
>>> from jopeq_lab.attacks import AttackConfig, GradientMap, attack, observe, scores, true_gradients
>>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
>>> images, labels = torch.rand(2, 1, 8, 8), torch.tensor([3, 5])
>>> seen_through = GradientMap(model, (1, 8, 8))
>>> gradients = true_gradients(seen_through, images, labels)
>>> sent = observe(jopeq.scheme("none"), gradients, seen_through.layout)
>>> found = attack(seen_through, sent, AttackConfig(iterations=10), labels=labels)
>>> bool((scores(found.images, images).ssim > 0.9).all())
True
"""

from jopeq_lab.attacks.attack import METHODS, AttackConfig, Reconstructions, attack
from jopeq_lab.attacks.gradients import GradientMap
from jopeq_lab.attacks.likelihood import Likelihood, likelihood
from jopeq_lab.attacks.observation import Observation, infer_labels, observe, true_gradients
from jopeq_lab.attacks.similarity import (
    Fraction,
    Scores,
    measure_fraction,
    recovered_fraction,
    scores,
    ssim,
)

__all__ = [
    "METHODS",
    "AttackConfig",
    "Fraction",
    "GradientMap",
    "Likelihood",
    "Observation",
    "Reconstructions",
    "Scores",
    "attack",
    "infer_labels",
    "likelihood",
    "measure_fraction",
    "observe",
    "recovered_fraction",
    "scores",
    "ssim",
    "true_gradients",
]
