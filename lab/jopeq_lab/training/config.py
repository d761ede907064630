"""Everything that determines a training run, of any kind, checked before it starts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from typing import Any, ClassVar

import torch

from jopeq.checks import check_count
from jopeq.entries.spread import best_spread
from jopeq.registry import scheme, scheme_from_spec
from jopeq.schemes.base import Scheme
from jopeq.sphere.sphere import Sphere
from jopeq.sums.record_sum import RecordSum
from jopeq_lab.training import features
from jopeq_lab.training import partition as partitions
from jopeq_lab.training.cohorts import Mechanism, Shares, mechanism
from jopeq_lab.training.descent import Descent
from jopeq_lab.training.local import COMPILE

SCHEDULES = ("constant", "client-plateau")
BASELINES = ("none", "central", "local", "alone")
_IMPROVED = 1.0 - 1e-4  # times the best loss: a loss below it ends a plateau
_MAY_BE_NONE = ("threads", "validation")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The settings of every kind of run; docs/commands.md explains each of them."""

    scheme: Any = "none"  # a scheme, its spec, or the name of one that needs no parameters
    rounds: int = 100
    model: str = "linear"
    data: str = "mnist5k"
    data_dir: str | None = None
    server_lr: float = 1.0
    validation: int | None = None
    seed: int = 0
    device: str = "cpu"
    tf32: bool = False
    threads: int | None = None
    checkpoint_every: int = 1

    MAY_CHANGE: ClassVar[tuple[str, ...]] = ("checkpoint_every", "data_dir")
    """Fields that may differ where a run is resumed."""
    LEAST: ClassVar[dict[str, int]] = {  # of every whole number
        **dict.fromkeys(("rounds", "checkpoint_every", "threads"), 1),
        **dict.fromkeys(("validation", "seed"), 0),
    }
    MOST: ClassVar[dict[str, float]] = {"server_lr": math.inf}
    """The largest value of every positive number."""

    def __post_init__(self) -> None:
        for name, least in self.LEAST.items():
            if getattr(self, name) is not None or name not in _MAY_BE_NONE:
                check_count(name, getattr(self, name), least)
        check_count("seed", self.seed, 0, 2**63 - 1)
        for name, most in self.MOST.items():
            value = getattr(self, name)
            is_number = isinstance(value, Real) and not isinstance(value, bool)
            if not is_number or not (math.isfinite(value) and 0.0 < value <= most):
                bound = "" if math.isinf(most) else f" of at most {most:g}"
                raise ValueError(f"{name} must be a positive number{bound}, got {value!r}")
        for one in fields(self):
            value = getattr(self, one.name)
            if one.type == "bool" and not isinstance(value, bool):
                raise ValueError(f"{one.name} must be True or False, got {value!r}")
            if one.type == "str" and not isinstance(value, str):
                raise ValueError(f"{one.name} must be a name, got {value!r}")
        check_device(self.device)
        if self.tf32 and torch.device(self.device).type != "cuda":
            raise ValueError(f"tf32=True is for GPUs, got device={self.device!r}: use 'cuda'")

    @property
    def spec(self) -> str:
        """The scheme and all its parameters, as text."""
        return str(self.scheme.spec)

    def as_dict(self) -> dict[str, Any]:
        """The fields as JSON holds them."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {**values, "scheme": self.spec}


@dataclass(frozen=True, kw_only=True)
class TrainConfig(RunConfig):
    """A federation of clients that train at home and send their updates (``clients.Clients``).

    The defaults are the paper's (K=10, lr 0.1), and its code's (τ=100, momentum 0.5, batch 16). The
    code also sets ``centered`` and ``keep_momentum``, and its "client-plateau" is the rule of
    PyTorch's ``ReduceLROnPlateau`` at every client. ``spread`` and ``clip`` replace the scheme's.

    >>> TrainConfig(scheme='["sdq",{"rate":2.0}]', clip=0.5).scheme.clip
    0.5
    """

    scheme: Scheme | str = "none"
    spread: float | str | None = None
    clip: float | None = None
    centered: bool = False
    partition: str = "iid"
    alpha: float = 0.5
    clients: int = 10
    participation: float = 1.0
    local_steps: int = 100
    lr: float = 0.1
    batch_size: int = 16
    momentum: float = 0.5
    keep_momentum: bool = False
    schedule: str = "constant"
    plateau_factor: float = 0.1
    plateau_patience: int = 10
    compile: str = "auto"
    checkpoint_every: int = 10

    MAY_CHANGE = (*RunConfig.MAY_CHANGE, "rounds")
    LEAST: ClassVar[dict[str, int]] = {
        **RunConfig.LEAST,
        **dict.fromkeys(("clients", "batch_size", "local_steps"), 1),
        "plateau_patience": 0,
    }
    MOST: ClassVar[dict[str, float]] = {
        **RunConfig.MOST,
        **dict.fromkeys(("lr", "alpha"), math.inf),
        "participation": 1.0,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (isinstance(self.momentum, Real) and 0.0 <= float(self.momentum) < 1.0):
            raise ValueError(f"momentum must be a number from 0 to below 1, got {self.momentum!r}")
        choices = {"partition": partitions.KINDS, "compile": COMPILE, "schedule": SCHEDULES}
        for name, known in choices.items():
            if getattr(self, name) not in known:
                given = getattr(self, name)
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {given!r}")
        if not 0.0 < self.plateau_factor < 1.0:
            given = self.plateau_factor
            raise ValueError(f"plateau_factor must lie between 0 and 1, got {given!r}")
        object.__setattr__(self, "scheme", self._complete_scheme())

    @property
    def built_scheme(self) -> Scheme:
        """The scheme with ``spread`` and ``clip``."""
        if not isinstance(self.scheme, Scheme):
            raise TypeError("the scheme is built at construction")
        return self.scheme

    def rate_factors(self, losses: Sequence[Sequence[float]]) -> list[float] | None:
        """Factor on each client's η, given the losses of its rounds; None: equal for all.

        >>> TrainConfig(schedule="client-plateau", plateau_patience=1).rate_factors([[1.0] * 3, []])
        [0.1, 1.0]
        """
        if self.schedule != "client-plateau":
            return None
        return [self._plateau(mine) for mine in losses]

    def _plateau(self, losses: Sequence[float]) -> float:
        best, bad, factor = math.inf, 0, 1.0
        for loss in losses:
            best, bad = (loss, 0) if loss < best * _IMPROVED else (best, bad + 1)
            if bad > self.plateau_patience:
                factor, bad = factor * self.plateau_factor, 0
        return factor

    def _complete_scheme(self) -> Scheme:
        base = _named(self.scheme)
        if isinstance(base, Sphere):
            raise ValueError(
                "a report of scheme 'sphere' tells the mean of a round alone: give people instead "
                "of clients"
            )
        if not isinstance(base, Scheme):
            raise ValueError(f"scheme must be a scheme, its spec or its name, got {base!r}")
        if isinstance(self.spread, str) and self.spread != "auto":
            raise ValueError(f"spread must be a positive number or 'auto', got {self.spread!r}")
        changes: dict[str, Any] = {"clip": self.clip, "spread": self.spread}
        if self.spread == "auto":
            changes["spread"] = best_spread(base, max(1, round(self.participation * self.clients)))
        given = {name: value for name, value in changes.items() if value is not None}
        return replace(base, **given) if given else base


def _named(given: Any) -> Any:
    """Make a scheme from a spec or a name; anything but text is returned unchanged."""
    if not isinstance(given, str):
        return given
    return scheme_from_spec(given) if given.startswith("[") else scheme(given)


@dataclass(frozen=True, kw_only=True)
class PeopleConfig(RunConfig):
    """People with few samples each, who send little (``people.People``).

    ``scheme`` may also be a mechanism of ``cohorts``; its ``clip`` bounds what a person sends: the
    sum of the gradients of ``local_steps`` steps at rate ``lr``. The server's steps: ``Descent``.
    """

    people: int = 1000
    examples: int = 1
    participations: int = 1
    rounds: int = 32
    features: str | None = None
    center: float = 0.0
    data: str = "mnist"
    local_steps: int = 1
    lr: float = 0.1
    server_momentum: float = 0.0
    decay: float = 0.0
    average: float = 0.0

    LEAST: ClassVar[dict[str, int]] = {
        **RunConfig.LEAST,
        **dict.fromkeys(("people", "examples", "participations", "local_steps"), 1),
    }
    MOST: ClassVar[dict[str, float]] = {**RunConfig.MOST, "lr": math.inf}

    def __post_init__(self) -> None:
        super().__post_init__()
        most = {"center": 0.5, "server_momentum": 0.999, "decay": 1.0, "average": 1.0}
        for name, largest in most.items():
            value = getattr(self, name)
            if not 0.0 <= value <= largest:
                raise ValueError(f"{name} must be a number from 0 to {largest:g}, got {value!r}")
        _check_features(self.features)
        if self.center and self.features is None:
            raise ValueError("center is the mean of features: give features, or leave center out")
        object.__setattr__(self, "scheme", mechanism(_named(self.scheme)))
        if self.center and self.participations > 1 and isinstance(self.scheme, Shares):
            raise ValueError(
                "the rounds of one secure sum compose, those of two differently planned ones are "
                "not proven to: with center, take participations=1"
            )
        if not 1 <= self.people_a_round <= self.people:
            raise ValueError(
                f"{self.people} people who take part {self.participations} times, less "
                f"{self.people_in_center} for the center, make {self.people_a_round} people in "
                f"each of {self.rounds} rounds: choose rounds so that it is from 1 to {self.people}"
            )

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism that makes a private mean of a round's updates."""
        built: Mechanism = self.scheme
        return built

    @property
    def people_in_center(self) -> int:
        """Reports that are spent on the features' mean."""
        return round(self.center * self.people)

    @property
    def people_a_round(self) -> int:
        """People per round, equally many in every round."""
        return (self.people * self.participations - self.people_in_center) // self.rounds

    @property
    def descent(self) -> Descent:
        """The server's rule."""
        return Descent(
            rounds=self.rounds,
            lr=self.server_lr,
            momentum=self.server_momentum,
            decay=self.decay,
            average=self.average,
        )


@dataclass(frozen=True, kw_only=True)
class HospitalsConfig(RunConfig):
    """Hospitals with many records each, and ε for a record (``hospitals.Hospitals``).

    ``scheme`` is a ``jopeq.RecordSum``, or its spec. It has the rounds, the hospitals (``clients``)
    and the number of records: of more training samples, so many are given out. Without a
    ``baseline`` real shares are summed. The server's rate falls to 0 as a cosine.
    """

    scheme: RecordSum | str = "none"
    rounds: int = field(init=False, default=1)  # the scheme's
    baseline: str | None = None
    partition: str = "iid"
    alpha: float = 0.5
    data: str = "mnist"
    test: int | None = None
    features: str | None = None
    standardized: bool = False
    server_lr: float = 32.0
    server_momentum: float = 0.9
    validation: int | None = 0

    MOST: ClassVar[dict[str, float]] = {**RunConfig.MOST, "alpha": math.inf}

    def __post_init__(self) -> None:
        made = _named(self.scheme)
        if not isinstance(made, RecordSum):
            raise ValueError(f"scheme must be a jopeq.RecordSum or its spec, got {self.scheme!r}")
        object.__setattr__(self, "scheme", made)
        object.__setattr__(self, "rounds", made.rounds)
        super().__post_init__()
        for name, known in (("partition", partitions.KINDS), ("baseline", (None, *BASELINES))):
            if (given := getattr(self, name)) not in known:
                listed = ", ".join(filter(None, known))
                raise ValueError(f"{name} must be one of {listed}, got {given!r}")
        if not 0.0 <= self.server_momentum < 1.0:
            given = self.server_momentum
            raise ValueError(f"server_momentum must be from 0 to below 1, got {given!r}")
        _check_features(self.features)

    @property
    def sums(self) -> RecordSum:
        """The scheme."""
        if not isinstance(self.scheme, RecordSum):
            raise TypeError("the scheme is built at construction")
        return self.scheme

    @property
    def descent(self) -> Descent:
        """The server's rule."""
        momentum = self.server_momentum
        return Descent(rounds=self.rounds, lr=self.server_lr, momentum=momentum, is_cosine=True)


def _check_features(kind: str | None) -> None:
    if kind is not None and kind not in features.KINDS:
        known = ", ".join(features.KINDS)
        raise ValueError(f"features must be one of {known} or None, got {kind!r}")


def check_device(name: str) -> None:
    """Raise ValueError unless PyTorch knows the device and it is there."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device must be 'cpu', 'cuda' or 'cuda:N', got {name!r}") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {name!r} asks for a GPU and none is available: use 'cpu'")
