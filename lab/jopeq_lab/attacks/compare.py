"""One set of images, sent through several schemes and attacked in several ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from jopeq.schemes.base import Scheme
from jopeq.sphere.sphere import Sphere
from jopeq_lab.attacks.attack import AttackConfig, attack
from jopeq_lab.attacks.gradients import GradientMap
from jopeq_lab.attacks.observation import Observation, observe, true_gradients
from jopeq_lab.attacks.similarity import Fraction, recovered_fraction, scores

Progress = Callable[[str, int, int], None]  # words, evaluations done, images done


@dataclass(frozen=True, eq=False)
class Outcome:
    """All images through one scheme, attacked in one way."""

    label: str
    spec: str
    method: str
    images: torch.Tensor
    mse: list[float]
    psnr: list[float]
    ssim: list[float]
    status: list[str]
    labels_right: int
    evaluations: float

    @property
    def recovered(self) -> Fraction:
        """The fraction of images that were found, with an SSIM above 0.5."""
        return recovered_fraction(torch.tensor(self.ssim), self.status)


def compare(
    gradient_map: GradientMap,
    images: torch.Tensor,
    labels: torch.Tensor,
    schemes: Mapping[str, Scheme | Sphere],
    methods: Sequence[str],
    config: AttackConfig,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Attack every scheme by every method, all schemes of a method at once where possible."""
    gradients = true_gradients(gradient_map, images, labels)
    outcomes: dict[tuple[str, str], Outcome] = {}
    for method in methods:
        chosen = replace(config, method=method)
        # schemes attacked together have distances alike; their likelihoods are not
        is_alone = method == "adaptive"
        for some in [{one: schemes[one]} for one in schemes] if is_alone else [schemes]:
            found = _attack(gradient_map, images, labels, gradients, some, chosen, progress)
            outcomes |= {(one.label, method): one for one in found}
    return [outcomes[label, method] for label in schemes for method in methods]


def _attack(
    gradient_map: GradientMap,
    images: torch.Tensor,
    labels: torch.Tensor,
    gradients: torch.Tensor,
    schemes: Mapping[str, Scheme | Sphere],
    config: AttackConfig,
    progress: Progress | None,
) -> list[Outcome]:
    count = len(images)
    sent = [observe(scheme, gradients, gradient_map.layout) for scheme in schemes.values()]
    words = f"{config.method}: {', '.join(schemes)}"
    result = attack(
        gradient_map,
        Observation.join(sent),
        config,
        labels=labels.repeat(len(sent)),
        names=list(range(count)) * len(sent),
        progress=None if progress is None else partial(progress, words),
    )
    outcomes = []
    for index, (label, scheme) in enumerate(schemes.items()):
        rows = slice(index * count, (index + 1) * count)
        quality = scores(result.images[rows], images)
        outcomes.append(
            Outcome(
                label=label,
                spec=scheme.spec,
                method=config.method,
                images=result.images[rows],
                mse=quality.mse.tolist(),
                psnr=quality.psnr.tolist(),
                ssim=quality.ssim.tolist(),
                status=list(result.status[rows]),
                labels_right=int((result.labels[rows].cpu() == labels.cpu()).sum()),
                evaluations=float(result.evaluations[rows].double().mean()),
            )
        )
    return outcomes
