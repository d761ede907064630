"""Everything that determines a training run, of clients or of people, checked before it starts."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import Any

import torch

from jopeq.federated import features
from jopeq.federated import partition as partitions
from jopeq.federated.cohorts import Mechanism, Shares, mechanism
from jopeq.federated.local import COMPILE
from jopeq.federated.server import Descent
from jopeq.privacy.adaptive_clip import AdaptiveClip
from jopeq.random.streams import SEED_BYTES, describe_secret
from jopeq.schemes import Scheme, scheme, scheme_from_spec
from jopeq.schemes.spread import best_spread

ADAPTIVE = "adaptive"
_MAX_SEED = 2**63 - 1
KINDS = ("constant", "plateau", "theorem")


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The learning rate of every local step.

    - ``constant``: ``lr``.
    - ``plateau``: ``lr``, multiplied by ``factor`` each time the validation accuracy has not
      improved by more than ``threshold`` (relative) for more than ``patience`` rounds: the rule and
      the defaults of PyTorch's ``ReduceLROnPlateau``, applied once a round.
    - ``theorem``: η_t = τ/(ρ_c(t + φ)) with φ = τ·max(1, 4ρ_s/ρ_c) (Theorem III.5), t counting
      all local steps since the first round, ρ_c = ``convexity`` and ρ_s = ``smoothness``. The
      defaults start at 0.1.

    >>> Schedule(kind="theorem").rates(0, [], steps=2)[0]
    0.1
    """

    kind: str = "constant"
    lr: float = 0.1
    factor: float = 0.1
    patience: int = 10
    threshold: float = 1e-4
    convexity: float = 1.0
    smoothness: float = 2.5

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"schedule must be one of {', '.join(KINDS)}, got {self.kind!r}")
        for name in ("lr", "convexity", "smoothness"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0.0):
                raise ValueError(f"{name} must be a positive number, got {value!r}")
        if not 0.0 < self.factor < 1.0:
            raise ValueError(f"plateau_factor must lie between 0 and 1, got {self.factor!r}")
        if self.patience < 0:
            raise ValueError(f"plateau_patience must not be negative, got {self.patience!r}")

    def rates(self, round_number: int, accuracies: Sequence[float], steps: int) -> list[float]:
        """η of each of a round's ``steps``; ``accuracies`` are those of all earlier rounds."""
        if self.kind == "constant":
            return [self.lr] * steps
        if self.kind == "plateau":
            return [self.lr * self.factor ** self._reductions(accuracies)] * steps
        first = round_number * steps
        shift = steps * max(1.0, 4.0 * self.smoothness / self.convexity)
        return [steps / (self.convexity * (first + t + shift)) for t in range(steps)]

    def _reductions(self, accuracies: Sequence[float]) -> int:
        best, bad, reductions = -math.inf, 0, 0
        for accuracy in accuracies:
            if accuracy > best * (1.0 + self.threshold):
                best, bad = accuracy, 0
            else:
                bad += 1
            if bad > self.patience:
                reductions, bad = reductions + 1, 0
        return reductions


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """A federated run; the defaults are the paper's (K=10, τ=100, lr 0.1, momentum 0.5, batch 16).

    Parameters
    ----------
    scheme
        A scheme, its ``spec``, or the name of one that needs no parameters.
    spread, rotate, clip
        Replace the scheme's own. ``spread="auto"`` is the best for the number of clients averaged
        in a round. ``clip="adaptive"`` starts at ``initial_clip`` and follows the ``clip_quantile``
        of the clients' updates: each participant spends ``clip_epsilon`` a round on its vote.
    model, data, data_dir
        Names, as in ``models.resolve`` and ``data.load``.
    centered
        Inputs from −1 to 1 instead of 0 to 1, as in the authors' code: convolutional networks then
        start to learn some rounds earlier.
    participation
        Fraction of the clients drawn in each round.
    server_lr
        w ← w + server_lr · Σ α_k h̃_k, α_k = |D_k| over the samples of all participants.
    validation
        Training samples held out; None: 10,000, at most a sixth.
    tf32
        Compute products on a GPU's tensor cores, which round factors to 10 bits of mantissa, as
        PyTorch's convolutions do by default. Updates remain float32.
    threads
        Threads of PyTorch during a round; None: PyTorch's setting. On a busy machine 1 is many
        times faster: steps are short, and threads wait for one another.
    noise_key
        **For tests only.** 32 bytes from which the noise and the dither of every payload are
        derived, so that runs repeat bit for bit. Anyone who knows the key can remove the noise.
        Without it, noise and dither come from the operating system's entropy and never repeat;
        batches, initialisation and partition always follow ``seed`` alone.

    >>> TrainConfig(scheme='["sdq",{"rate":2.0}]', rotate=True).scheme.rotate
    True
    """

    scheme: Scheme | str = "none"
    spread: float | str | None = None
    rotate: bool | None = None
    clip: float | str | None = None
    initial_clip: float = 0.1
    clip_epsilon: float = 1.0
    clip_quantile: float = 0.5
    clip_learning_rate: float = 0.2
    model: str = "linear"
    data: str = "mnist5k"
    data_dir: str | None = None
    centered: bool = False
    partition: str = "iid"
    alpha: float = 0.5
    shards_per_client: int = 2
    clients: int = 10
    participation: float = 1.0
    rounds: int = 100
    local_steps: int = 100
    batch_size: int = 16
    lr: float = 0.1
    momentum: float = 0.5
    schedule: str = "constant"
    plateau_factor: float = 0.1
    plateau_patience: int = 10
    convexity: float = 1.0
    smoothness: float = 2.5
    server_lr: float = 1.0
    validation: int | None = None
    seed: int = 0
    client_chunk: int | None = None
    compile: str = "auto"
    device: str = "cpu"
    tf32: bool = False
    threads: int | None = None
    checkpoint_every: int = 10
    noise_key: bytes | None = None

    def __post_init__(self) -> None:
        for name in ("clients", "rounds", "local_steps", "batch_size", "shards_per_client"):
            self._check_integer(name, 1)
        self._check_integer("checkpoint_every", 1)
        self._check_integer("plateau_patience", 0)
        self._check_integer("seed", 0)
        for name in ("client_chunk", "threads"):
            if getattr(self, name) is not None:
                self._check_integer(name, 1)
        if self.validation is not None:
            self._check_integer("validation", 0)
        for name in ("lr", "server_lr", "alpha", "initial_clip", "convexity", "smoothness"):
            self._check_number(name, 0.0, math.inf, is_open=True)
        self._check_number("momentum", 0.0, 1.0)
        if self.momentum == 1.0:
            raise ValueError("momentum must be below 1, got 1.0: the steps would never fade")
        self._check_number("participation", 0.0, 1.0, is_open=True)
        self._check_name("partition", partitions.KINDS)
        self._check_name("compile", COMPILE)
        for name in ("model", "data", "device"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name} must be a name, got {getattr(self, name)!r}")
        for name in ("centered", "tf32"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}")
        check_device(self.device)
        if self.tf32 and torch.device(self.device).type != "cuda":
            raise ValueError(f"tf32=True is for GPUs, got device={self.device!r}: use 'cuda'")
        if self.noise_key is not None and (
            not isinstance(self.noise_key, bytes) or len(self.noise_key) != SEED_BYTES
        ):
            raise ValueError(
                f"noise_key must be {SEED_BYTES} bytes, got {describe_secret(self.noise_key)}"
            )
        self.learning_rates  # noqa: B018 (validates its parameters)
        if self.schedule == "plateau" and self.validation == 0:
            raise ValueError(
                "schedule='plateau' watches the validation accuracy: it needs validation above 0"
            )
        object.__setattr__(self, "scheme", self._complete_scheme())
        if self.is_adaptive and self.built_scheme.guarantee.unit == "update":
            raise ValueError(
                "clip='adaptive' follows the size of samples, and scheme 'sphere' clips the whole "
                "update's norm: give clip as a number"
            )
        if self.is_adaptive:
            self.adaptive_clip  # noqa: B018 (validates its parameters)

    @property
    def built_scheme(self) -> Scheme:
        """The scheme with ``spread``, ``rotate`` and ``clip``; of the first round if adaptive."""
        if not isinstance(self.scheme, Scheme):
            raise TypeError("the scheme is built at construction")
        return self.scheme

    @property
    def is_adaptive(self) -> bool:
        """Whether the clip follows the updates."""
        return self.clip == ADAPTIVE

    @property
    def adaptive_clip(self) -> AdaptiveClip:
        """The rule by which clients vote on the clip and the server moves it."""
        return AdaptiveClip(
            epsilon=self.clip_epsilon,
            quantile=self.clip_quantile,
            learning_rate=self.clip_learning_rate,
            spread=self.built_scheme.spread,
        )

    @property
    def learning_rates(self) -> Schedule:
        """The schedule."""
        return Schedule(
            kind=self.schedule,
            lr=self.lr,
            factor=self.plateau_factor,
            patience=self.plateau_patience,
            convexity=self.convexity,
            smoothness=self.smoothness,
        )

    def as_dict(self) -> dict[str, Any]:
        """The fields as JSON holds them: the scheme's spec, and the noise key's fingerprint."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values["scheme"] = self.built_scheme.spec
        if self.noise_key is not None:
            values["noise_key"] = "SHA-256 " + hashlib.sha256(self.noise_key).hexdigest()
        return values

    def _complete_scheme(self) -> Scheme:
        base = self.scheme
        if isinstance(base, str):
            base = scheme_from_spec(base) if base.startswith("[") else scheme(base)
        if not isinstance(base, Scheme):
            raise ValueError(f"scheme must be a scheme, its spec or its name, got {base!r}")
        changes: dict[str, Any] = {}
        if self.rotate is not None:
            changes["rotate"] = self.rotate
        if self.is_adaptive:
            changes["clip"] = self.initial_clip
        elif isinstance(self.clip, str):
            raise ValueError(f"clip must be a positive number or 'adaptive', got {self.clip!r}")
        elif self.clip is not None:
            changes["clip"] = self.clip
        if self.spread == "auto":
            averaged = max(1, round(self.participation * self.clients))
            changes["spread"] = best_spread(base, averaged)
        elif isinstance(self.spread, str):
            raise ValueError(f"spread must be a positive number or 'auto', got {self.spread!r}")
        elif self.spread is not None:
            changes["spread"] = self.spread
        return replace(base, **changes) if changes else base

    def _check_integer(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MAX_SEED:
            raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")

    def _check_number(self, name: str, low: float, high: float, is_open: bool = False) -> None:
        value = getattr(self, name)
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if not is_number or not low <= value <= high or not math.isfinite(value):
            raise ValueError(f"{name} must be a number from {low:g} to {high:g}, got {value!r}")
        if is_open and value == low:
            raise ValueError(f"{name} must be above {low:g}, got {value!r}")

    def _check_name(self, name: str, known: tuple[str, ...]) -> None:
        if getattr(self, name) not in known:
            raise ValueError(
                f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}"
            )


@dataclass(frozen=True, kw_only=True)
class PeopleConfig:
    """A population and its training; checked before anything starts.

    Parameters
    ----------
    scheme
        A scheme (or its spec, or the name of one that needs no parameters), or a mechanism of
        ``cohorts``. Its ``clip`` bounds what a person sends.
    people, examples, participations
        N people with m training samples each, who take part in so many rounds at most.
    features
        "hog", "pixels", or None for images as they are.
    center
        Share of the people whose first report is of their features, for a private mean of them
        that all others subtract. Needs ``features``.
    local_steps, lr
        A person's update is the sum of the gradients of ``local_steps`` steps at rate ``lr``.
    server_lr, server_momentum, decay, average
        See ``server.Descent``.
    validation
        Training samples that nobody has; None: 10,000, at most a sixth.
    threads
        Threads of PyTorch; None: PyTorch's setting. On a busy machine 1 is many times faster.
    """

    scheme: Any = "none"
    people: int = 1000
    examples: int = 1
    participations: int = 1
    rounds: int = 32
    features: str | None = None
    center: float = 0.0
    model: str = "linear"
    data: str = "mnist"
    data_dir: str | None = None
    local_steps: int = 1
    lr: float = 0.1
    server_lr: float = 1.0
    server_momentum: float = 0.0
    decay: float = 0.0
    average: float = 0.0
    validation: int | None = None
    seed: int = 0
    device: str = "cpu"
    threads: int | None = None

    def __post_init__(self) -> None:
        counts = ("people", "examples", "participations", "rounds", "local_steps")
        for name in (*counts, *(() if self.threads is None else ("threads",))):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
        most = {"center": 0.5, "server_momentum": 0.999, "decay": 1.0, "average": 1.0}
        for name, largest in most.items():
            value = getattr(self, name)
            if not 0.0 <= value <= largest:
                raise ValueError(f"{name} must be a number from 0 to {largest:g}, got {value!r}")
        for name in ("lr", "server_lr"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0.0):
                raise ValueError(f"{name} must be a positive number, got {value!r}")
        if self.features is not None and self.features not in features.KINDS:
            known = ", ".join(features.KINDS)
            raise ValueError(f"features must be one of {known} or None, got {self.features!r}")
        if self.center and self.features is None:
            raise ValueError("center is the mean of features: give features, or leave center out")
        check_device(self.device)
        object.__setattr__(self, "scheme", self._built())
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

    def _built(self) -> Mechanism:
        given = self.scheme
        if isinstance(given, str):
            given = scheme_from_spec(given) if given.startswith("[") else scheme(given)
        return mechanism(given)

    @property
    def mechanism(self) -> Mechanism:
        """What makes a private mean of a round's updates."""
        built: Mechanism = self.scheme
        return built

    @property
    def people_in_center(self) -> int:
        """Reports that are spent on the features' mean."""
        return round(self.center * self.people)

    @property
    def people_a_round(self) -> int:
        """All rounds have as many."""
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

    def as_dict(self) -> dict[str, Any]:
        """The fields as JSON holds them."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "scheme": self.mechanism.spec}


def check_device(name: str) -> None:
    """Raise ValueError unless PyTorch knows the device and it is there."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device must be 'cpu', 'cuda' or 'cuda:N', got {name!r}") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {name!r} asks for a GPU and none is available: use 'cpu'")
