"""Invert gradients: reconstruct the image behind each of many gradients at once.

| method | label | minimizes | from |
|---|---|---|---|
| dlg | found together with the image | ‖g − ĝ‖² | Zhu, Liu, Han 2019 |
| idlg | read off the last layer | ‖g − ĝ‖² | Zhao, Mopuri, Bilen 2020 |
| label | given | ‖g − ĝ‖² | the paper, section IV-B |
| inverting | given | 1 − cos(g, ĝ) + total variation | Geiping et al. 2020 |
| adaptive | given | −log P(payload, given g) + total variation | ``likelihood`` |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import torch

from jopeq_lab.attacks.gradients import GradientMap, exact_convolutions
from jopeq_lab.attacks.likelihood import Likelihood
from jopeq_lab.attacks.observation import Observation, check_labels, infer_labels
from jopeq_lab.attacks.optimizers import (
    CONVERGED,
    FAILED,
    LINE_SEARCHES,
    SPENT,
    STALLED,
    BatchedAdam,
    BatchedLBFGS,
)
from jopeq_lab.attacks.similarity import NOT_RECOVERED
from jopeq_lab.training.seeding import generator

METHODS = ("dlg", "idlg", "label", "inverting", "adaptive")
OPTIMIZERS = ("lbfgs", "adam")
STARTS = ("grey", "normal")
EVALUATIONS = 20  # of one iteration
NO_LABEL = -1  # of an image whose label was sought with the image and not found
_VARIATION = {"inverting": 1e-2, "adaptive": 0.4}
_STATUS = {CONVERGED: "converged", STALLED: "stalled", SPENT: "spent", FAILED: NOT_RECOVERED}
_SMOOTH = 1e-3  # pixel differences below it count quadratically in the total variation
_BOX = 10.0  # weight of leaving [0, 1], relative to a squared distance of pixels

Progress = Callable[[int, int], None]  # evaluations done, images done


@dataclass(frozen=True, eq=False, kw_only=True)
class Objective:
    """distance(candidate's gradient, received gradient) + ``variation`` · total variation.

    Parameters
    ----------
    received
        (N, d): the decoded gradients.
    targets
        (N, classes): the labels as probabilities; None when the attack seeks labels and images
        together: the last ``classes`` variables are then the labels' logits.
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
        """The objective of these rows alone."""
        return replace(
            self,
            received=self.received[rows],
            targets=None if self.targets is None else self.targets[rows],
            which=None if self.which is None else self.which[rows],
            likelihood=None if self.likelihood is None else self.likelihood.select(rows),
        )

    def stages(self) -> list[Objective]:
        """The objectives minimized in turn: a likelihood first as if the noise were Gaussian."""
        rough = None if self.likelihood is None else self.likelihood.as_if_gaussian()
        return [self] if rough is None else [replace(self, likelihood=rough), self]

    def images(self, candidates: torch.Tensor) -> torch.Tensor:
        """(N, C, H, W)"""
        return candidates[:, : self.pixels].reshape(-1, *self.gradient_map.input_shape)

    def evaluate(self, candidates: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Losses (N,) and their gradients (N, variables)."""
        candidates = candidates.detach().requires_grad_()
        with exact_convolutions():
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


@dataclass(frozen=True, kw_only=True)
class AttackConfig:
    """Settings of an attack.

    Parameters
    ----------
    optimizer
        "lbfgs" or "adam"; None is the method's own: Adam for ``inverting``, else L-BFGS.
    iterations
        Counted as in the published code: an iteration is one call of ``torch.optim.LBFGS.step``,
        that is 20 evaluations of the objective and its gradient. Each image has this budget for
        itself. Adam has the same budget and makes one step per evaluation.
    start
        "grey": ½ + 0.1·N(0, 1) in each pixel; "normal": N(0, 1), as published, which needs more
        evaluations and gets stuck on trained weights.
    line_search
        Of L-BFGS: "wolfe", or "none" as published.
    variation
        Weight of the total variation; None is the method's own.
    tolerance
        A relative squared distance (or 1 − cosine) at which an image has converged.
    patience
        Evaluations without progress of 0.1% after which an image is given up; 0: never.
    """

    method: str = "label"
    optimizer: str | None = None
    iterations: int = 300
    start: str = "grey"
    line_search: str = "wolfe"
    history: int = 100
    variation: float | None = None
    learning_rate: float = 0.1
    tolerance: float = 1e-9
    patience: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        for name, known in (
            ("method", METHODS),
            ("optimizer", (*OPTIMIZERS, None)),
            ("start", STARTS),
            ("line_search", LINE_SEARCHES),
        ):
            if getattr(self, name) not in known:
                shown = ", ".join(filter(None, known))
                raise ValueError(f"{name} must be one of {shown}, got {getattr(self, name)!r}")
        least_of = {"iterations": 1, "history": 1, "patience": 0, "seed": 0}
        for name, least in least_of.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
        for name in ("variation", "learning_rate", "tolerance"):
            value = getattr(self, name)
            if value is None and name == "variation":
                continue
            is_number = isinstance(value, Real) and not isinstance(value, bool)
            if not is_number or not 0 <= value < math.inf:
                raise ValueError(f"{name} must be a number of at least 0, got {value!r}")
        if self.learning_rate == 0:
            raise ValueError("learning_rate must be above 0, got 0")

    @property
    def optimizer_in_use(self) -> str:
        """The optimizer given in the settings, by default the method's own."""
        return self.optimizer or ("adam" if self.method == "inverting" else "lbfgs")

    @property
    def total_variation(self) -> float:
        """The weight given in the settings, by default the method's own."""
        if self.variation is not None:
            return self.variation
        return _VARIATION.get(self.method, 0.0)


@dataclass(frozen=True, eq=False)
class Reconstructions:
    """The images that an attack found, on the CPU."""

    images: torch.Tensor  # (N, C, H, W), not clipped; plain grey where not recovered
    labels: torch.Tensor  # (N,): given, read or sought; −1 where the search failed
    losses: torch.Tensor
    status: tuple[str, ...]  # converged, stalled, spent (in any stage) or not recovered
    evaluations: torch.Tensor  # of both attempts


def attack(
    gradient_map: GradientMap,
    observation: Observation,
    config: AttackConfig | None = None,
    *,
    labels: torch.Tensor | None = None,
    which: torch.Tensor | None = None,
    names: list[int] | None = None,
    progress: Progress | None = None,
) -> Reconstructions:
    """Attack every observed gradient.

    ``labels`` are the true labels, for the methods that are given them. ``which`` says which row of
    ``gradient_map.parameters`` made each gradient. ``names`` (by default 0, 1, …) number the
    images: an image's random start depends on its number, not on the other images.
    """
    config = AttackConfig() if config is None else config
    count = len(observation)
    if not count:
        raise ValueError("the observation must have at least one image, got none")
    names = list(range(count)) if names is None else names
    if len(names) != count:
        raise ValueError(f"names must number all {count} images, got {len(names)}")
    objective, known = _objective(gradient_map, observation, config, labels, which)
    device, dtype = gradient_map.device, gradient_map.dtype
    floor = config.tolerance if config.method != "adaptive" else -math.inf
    best = torch.zeros(count, objective.variables, dtype=dtype, device=device)
    best[:, : objective.pixels] = 0.5
    losses = torch.full((count,), math.inf, dtype=dtype, device=device)
    status = torch.full((count,), FAILED, device=device)
    evaluations = torch.zeros(count, dtype=torch.int64, device=device)
    for attempt in range(2):  # what meets NaN or infinity is tried once more
        rows = (status == FAILED).nonzero()[:, 0]
        if not len(rows):
            break
        starts = [_start(objective, config, names[row], attempt) for row in rows.tolist()]
        start = torch.stack(starts).to(device, dtype)
        stages = objective.select(rows).stages()
        ran_out = torch.zeros(len(rows), dtype=torch.bool, device=device)
        budget = EVALUATIONS * config.iterations // len(stages)
        for number, stage in enumerate(stages):
            shown = None if progress is None else _onward(progress, number * budget)
            found = _optimizer(stage, config, budget, floor, shown).minimize(start)
            good = (found.status != FAILED) & found.losses.isfinite()
            start = torch.where(good[:, None], found.points, start)
            evaluations[rows] += found.evaluations
            ran_out |= found.status == SPENT
        taken = rows[good]
        best[taken], losses[taken] = found.points[good], found.losses[good]
        # if any stage ran out of evaluations, more iterations would help, however the last ended
        status[taken] = torch.where(ran_out, SPENT, found.status)[good]
    if known is None:
        known = best[:, objective.pixels :].argmax(1).masked_fill(status == FAILED, NO_LABEL)
    return Reconstructions(
        images=objective.images(best).float().cpu(),
        labels=known.cpu(),
        losses=losses.double().cpu(),
        status=tuple(_STATUS[int(one)] for one in status.cpu()),
        evaluations=evaluations.cpu(),
    )


def _objective(
    gradient_map: GradientMap,
    observation: Observation,
    config: AttackConfig,
    labels: torch.Tensor | None,
    which: torch.Tensor | None,
) -> tuple[Objective, torch.Tensor | None]:
    device, dtype = gradient_map.device, gradient_map.dtype
    received = observation.gradients.to(device, dtype)
    if received.ndim != 2 or received.shape[1] != gradient_map.size:
        raise ValueError(
            f"the observed gradients must have {gradient_map.size} entries, as the model has "
            f"parameters, got shape {tuple(received.shape)}"
        )
    known: torch.Tensor | None = None
    if config.method == "idlg":
        known = infer_labels(received, gradient_map.layout, gradient_map.classes)
    elif config.method != "dlg":
        if labels is None:
            raise ValueError(
                f"method {config.method!r} is given the true labels: pass one per image, or use "
                "'idlg', which reads them off the gradient"
            )
        known = check_labels(labels, len(observation), gradient_map.classes).to(device)
    distance = {"inverting": "cosine", "adaptive": "likelihood"}.get(config.method, "squares")
    objective = Objective(
        gradient_map=gradient_map,
        received=received,
        targets=None if known is None else gradient_map.one_hot(known),
        which=None if which is None else which.to(device),
        distance=distance,
        variation=config.total_variation,
        is_boxed=config.method == "adaptive",
    )
    if distance == "likelihood":
        said = observation.likelihood().to(device, dtype)
        objective = replace(objective, likelihood=said)
    return objective, known


def _start(objective: Objective, config: AttackConfig, name: int, attempt: int) -> torch.Tensor:
    draws = torch.randn(  # noqa: TID251
        objective.variables,
        generator=generator(config.seed, "attack start", name, attempt),
        dtype=torch.float64,
    )
    if config.start == "grey":
        draws[: objective.pixels] = 0.5 + 0.1 * draws[: objective.pixels]
    return draws


def _onward(progress: Progress, before: int) -> Progress:
    """Progress that counts a stage's evaluations after those ``before`` the stage."""
    return lambda done, images: progress(before + done, images)


def _optimizer(
    objective: Objective,
    config: AttackConfig,
    budget: int,
    tolerance: float,
    progress: Progress | None,
) -> BatchedLBFGS | BatchedAdam:
    chosen: list[tuple[torch.Tensor, Objective]] = []

    def evaluate(points: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        # the optimizer passes the same ``rows`` until some images are done
        if not chosen or chosen[0][0] is not rows:
            chosen[:] = [(rows, objective.select(rows))]
        return chosen[0][1].evaluate(points)

    common: dict[str, Any] = {
        "evaluations": budget,
        "tolerance": tolerance,
        "patience": config.patience,
        "progress": progress,
    }
    if config.optimizer_in_use == "adam":
        rate = config.learning_rate
        return BatchedAdam(evaluate, learning_rate=rate, boxed=objective.pixels, **common)
    history, line_search = config.history, config.line_search
    return BatchedLBFGS(evaluate, history=history, line_search=line_search, **common)
