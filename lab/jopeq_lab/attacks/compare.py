"""One set of images, sent through several schemes and attacked in several ways."""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from jopeq.errors import DataError
from jopeq.files import atomic
from jopeq.schemes.base import Scheme
from jopeq.sphere.sphere import Sphere
from jopeq_lab.attacks.attack import AttackConfig, attack
from jopeq_lab.attacks.gradients import GradientMap
from jopeq_lab.attacks.observation import Observation, observe, true_gradients
from jopeq_lab.attacks.similarity import Fraction, measure_fraction, recovered_fraction, scores

_UNREADABLE = (OSError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile, zlib.error)
_ARRAYS = ("fingerprint", "gradients", "facts", "images")  # of a file of outcomes
_SKETCH = 8  # projections by which a gradient is recognised
_ROUNDING = 1e-4  # of a gradient's norm: more than devices and numbers of threads make

Progress = Callable[[str, int, int], None]  # words, evaluations done, images done


def write_npz(path: Path, **arrays: Any) -> None:
    """Replace the file at once: a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic(path) as file:
        np.savez_compressed(file, **arrays)


def read_npz(path: Path, *names: str) -> list[NDArray[Any]]:
    """The arrays of these names; nothing in the file can run."""
    try:
        # opened here: NumPy does not close a file that it opened and could not read
        with path.open("rb") as file, np.load(file, allow_pickle=False) as held:
            return [held[name] for name in names]
    except _UNREADABLE as error:
        raise DataError(f"{path} cannot be read ({error}): delete it to start anew") from error


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

    @property
    def labels(self) -> Fraction:
        """The fraction of labels that are right (all, where they were given)."""
        return measure_fraction(self.labels_right, len(self.ssim))


def compare(
    gradient_map: GradientMap,
    images: torch.Tensor,
    labels: torch.Tensor,
    schemes: Mapping[str, Scheme | Sphere],
    methods: Sequence[str],
    config: AttackConfig,
    *,
    keep: Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Attack every scheme by every method, all schemes of a method at once where possible.

    Outcomes are kept in the file ``keep`` (.npz). ``resume`` reads them back, if they were made
    from the same images, model, schemes and settings. A file that ``compare`` did not make is never
    replaced.
    """
    gradients = true_gradients(gradient_map, images, labels)
    fingerprint = _fingerprint(gradient_map, images, labels, config)
    kept = _Kept(keep, fingerprint, _sketch(gradients), resume)
    outcomes: dict[tuple[str, str], Outcome] = {}
    for method in methods:
        chosen = replace(config, method=method)
        # schemes attacked together have distances alike; their likelihoods are not
        is_alone = method == "adaptive"
        for some in [{one: schemes[one]} for one in schemes] if is_alone else [dict(schemes)]:
            missing = {}
            for label, scheme in some.items():
                found = kept.find(label, scheme.spec, method)
                if found is None:
                    missing[label] = scheme
                else:
                    outcomes[label, method] = found
            for outcome in _attack(
                gradient_map, images, labels, gradients, missing, chosen, progress
            ):
                kept.add(outcome)
                outcomes[outcome.label, method] = outcome
    return [outcomes[label, method] for label in schemes for method in methods]


def is_of_outcomes(path: Path) -> bool:
    """Tell if ``compare`` made the file, so that it may be replaced."""
    try:
        with zipfile.ZipFile(path) as held:
            names = {name.removesuffix(".npy") for name in held.namelist()}
    except zipfile.BadZipFile:
        return False
    return names == set(_ARRAYS)


def _attack(
    gradient_map: GradientMap,
    images: torch.Tensor,
    labels: torch.Tensor,
    gradients: torch.Tensor,
    schemes: Mapping[str, Scheme | Sphere],
    config: AttackConfig,
    progress: Progress | None,
) -> list[Outcome]:
    if not schemes:
        return []
    count = len(images)
    sent = [observe(scheme, gradients, gradient_map.layout) for scheme in schemes.values()]
    words = f"{config.method}: {', '.join(schemes)}"
    result = attack(
        gradient_map,
        Observation.join(sent),
        config,
        labels=labels.repeat(len(sent)),
        names=list(range(count)) * len(sent),
        progress=None
        if progress is None
        else lambda attempt, done, finished: progress(words, done, finished),
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


def _fingerprint(
    gradient_map: GradientMap, images: torch.Tensor, labels: torch.Tensor, config: AttackConfig
) -> str:
    """A digest of images, labels, trained parameters and settings, without scheme and method."""
    digest = hashlib.sha256(json.dumps({**asdict(config), "method": None}).encode())
    for tensor in (gradient_map.parameters, images, labels):
        digest.update(tensor.detach().double().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _sketch(gradients: torch.Tensor) -> torch.Tensor:
    """Each gradient's norm and its random projections (N, 1 + 8).

    Gradients depend on a model's code, frozen parameters and buffers too, which the fingerprint
    does not see. They are no digest, because their last bits differ from device to device.
    """
    rows = gradients.detach().double().cpu()
    drawn = torch.Generator().manual_seed(0)
    directions = torch.randn(rows.shape[1], _SKETCH, generator=drawn, dtype=torch.float64)  # noqa: TID251
    return torch.cat([rows.norm(dim=1, keepdim=True), rows @ directions], 1)


class _Kept:
    """Outcomes in a file, rewritten whole whenever one is added."""

    def __init__(
        self, path: Path | None, fingerprint: str, sketch: torch.Tensor, resume: bool
    ) -> None:
        self._path, self._fingerprint, self._sketch = path, fingerprint, sketch
        self._outcomes: list[Outcome] = []
        if path is None or not path.exists():
            return
        if resume:
            self._outcomes = self._read(path)
        elif not is_of_outcomes(path):
            raise DataError(f"{path} holds something else: move it, or keep outcomes elsewhere")

    def find(self, label: str, spec: str, method: str) -> Outcome | None:
        for outcome in self._outcomes:
            if (outcome.spec, outcome.method) == (spec, method):
                return replace(outcome, label=label)
        return None

    def add(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        if self._path is None:
            return
        facts = [{**vars(one), "images": None} for one in self._outcomes]
        write_npz(
            self._path,
            fingerprint=np.array(self._fingerprint),
            gradients=self._sketch.numpy(),
            facts=np.array(json.dumps(facts)),
            images=torch.stack([one.images for one in self._outcomes]).numpy(),
        )

    def _read(self, path: Path) -> list[Outcome]:
        fingerprint, gradients, facts, images = read_npz(path, *_ARRAYS)
        sketch, kept = self._sketch, torch.from_numpy(gradients)
        is_same = str(fingerprint) == self._fingerprint and kept.shape == sketch.shape
        if not is_same or not ((kept - sketch).abs() <= _ROUNDING * sketch[:, :1]).all():
            raise DataError(
                f"{path} was made from other images, another model or other settings: "
                "repeat those, or start anew without --resume"
            )
        return [
            Outcome(**{**fact, "images": torch.from_numpy(found)})
            for fact, found in zip(json.loads(str(facts)), images, strict=True)
        ]
