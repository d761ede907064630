"""The models of the experiments, and the user's own, made from a seed.

All give logits (the softmax is part of the loss), keep no state but their parameters, and work
under ``torch.func.functional_call`` and ``vmap``. The counts are of learnable parameters for ten
classes.

| name | input | parameters | what it is |
|---|---|---|---|
| linear | 1×28×28 | 7,850 | softmax regression |
| mlp | 1×28×28 | 25,818 | hidden layers of 32 and 16, ReLU |
| cnn | 1×28×28 | 6,422 | two 5×5 convolutions of 6 maps, each with ReLU and 2×2 pooling; dense 50 |
| tanh-cnn | 1×28×28 | 26,010 | convolutions 8×8/2 of 16 and 4×4/2 of 32 maps, each with tanh and \
2×2/1 pooling; dense 32, tanh; for clipped gradients (Papernot et al. 2021) |
| cifar-cnn | 3×32×32 | 169,578 | three 3×3 convolutions of 32, 64, 128 maps, each with ReLU, 2×2 \
pooling and dropout 0.2; dense 128, 64, 32 |
| lenet | 3×32×32 | 15,826 | three 5×5 convolutions of 12 maps, sigmoid; for inversion attacks |
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from jopeq_lab.training.seeding import seeded

Shape = tuple[int, int, int]

_GIVEN = ("input_shape", "classes", "seed")


def build(name: str, input_shape: Shape, classes: int, seed: int) -> nn.Module:
    """A new model, on the CPU, whose parameters the seed alone determines.

    ``name`` is one of ``NAMES``, or an import path "package.module:factory". A factory is called
    with those of the keywords ``input_shape``, ``classes`` and ``seed`` that it takes, PyTorch
    being seeded meanwhile: its global random state is left as it was.

    >>> count_parameters(build("linear", (1, 28, 28), classes=10, seed=0))
    7850
    """
    factory = _named(name)
    given = {"input_shape": input_shape, "classes": classes, "seed": seed}
    taken = {keyword: given[keyword] for keyword in _keywords(factory, name)}
    with seeded(seed), torch.device("cpu"):
        made = factory(**taken)
    if not isinstance(made, nn.Module):
        kind = type(made).__name__
        raise ValueError(f"model {name!r} must return an nn.Module, it returned {kind}")
    return made


def build_from_zero(
    name: str, input_shape: Shape, classes: int, seed: int, *, has_bias: bool
) -> nn.Module:
    """Like ``build``, but linear models start at zero; a constant input entry is a bias too."""
    if name != "linear":
        return build(name, input_shape, classes, seed)
    made = nn.Linear(math.prod(input_shape), classes, bias=has_bias)
    for parameter in made.parameters():
        nn.init.zeros_(parameter)
    return nn.Sequential(nn.Flatten(), made)


def count_parameters(model: nn.Module) -> int:
    """The number of trained entries, which an update has too."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


class ModelVector:
    """A model as the vector of ``size`` entries that clients train and send.

    The vector holds the trained parameters, then the float buffers that training changes (the
    running statistics of batch normalisation). Frozen parameters, constant buffers and integer
    buffers are the same at all clients and never sent.

    >>> layout = ModelVector(nn.Linear(3, 2))
    >>> layout.names, layout.size
    (('weight', 'bias'), 8)
    """

    def __init__(self, model: nn.Module, changing: frozenset[str] = frozenset()) -> None:
        trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
        if not trained:
            raise ValueError("no parameter of the model requires a gradient: nothing to train")
        kept = {n: b for n, b in model.named_buffers() if n in changing and b.is_floating_point()}
        tensors = {**trained, **kept}
        self.trained = tuple(trained)
        self.names = tuple(tensors)
        self.shapes = tuple(tuple(tensor.shape) for tensor in tensors.values())
        self.sizes = tuple(math.prod(shape) for shape in self.shapes)
        self.size = sum(self.sizes)

    def read(self, model: nn.Module) -> torch.Tensor:
        """The model's entries, as float32 on the CPU."""
        tensors = self._tensors(model)
        return torch.cat([tensor.detach().reshape(-1).float().cpu() for tensor in tensors])

    def write(self, model: nn.Module, vector: torch.Tensor) -> None:
        """Set the model's entries. Running variances that noise made negative become 0."""
        pieces = torch.split(vector, list(self.sizes))
        for name, tensor, piece in zip(self.names, self._tensors(model), pieces, strict=True):
            tensor.detach().copy_(piece.view(tensor.shape))
            if name.rpartition(".")[2] == "running_var":
                tensor.detach().clamp_(min=0.0)

    def stacked(self, vector: torch.Tensor, clients: int) -> dict[str, torch.Tensor]:
        """Every client's own copy, by name, of shape (clients, *shape).

        ``vector`` is one for all, or (clients, size).
        """
        pieces = torch.split(vector, list(self.sizes), dim=-1)
        return {
            name: piece.reshape(*vector.shape[:-1], *shape).expand(clients, *shape).clone()
            for name, shape, piece in zip(self.names, self.shapes, pieces, strict=True)
        }

    def joined(self, stacked: dict[str, torch.Tensor], clients: int) -> torch.Tensor:
        """The inverse of ``stacked``: (clients, size)."""
        return torch.cat([stacked[name].detach().reshape(clients, -1) for name in self.names], 1)

    def _tensors(self, model: nn.Module) -> list[torch.Tensor]:
        found = dict(model.named_parameters()) | dict(model.named_buffers())
        return [found[name] for name in self.names]


def changing_buffers(model: nn.Module, inputs: torch.Tensor) -> frozenset[str]:
    """The buffers that a pass over ``inputs`` in training mode changes."""
    trial = copy.deepcopy(model).train()
    before = {name: buffer.clone() for name, buffer in trial.named_buffers()}
    with torch.no_grad():
        trial(inputs)
    after = dict(trial.named_buffers())
    return frozenset(name for name, kept in before.items() if not torch.equal(kept, after[name]))


# The models


def _linear(input_shape: Shape, classes: int) -> nn.Module:
    channels, height, width = input_shape
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, classes))


def _mlp(input_shape: Shape, classes: int) -> nn.Module:
    channels, height, width = input_shape
    return nn.Sequential(nn.Flatten(), *_dense(channels * height * width, 32, 16, classes))


def _cnn(input_shape: Shape, classes: int) -> nn.Module:
    height, width = _sides("cnn", input_shape, 16, lambda side: ((side - 4) // 2 - 4) // 2)
    return nn.Sequential(
        *(nn.Conv2d(input_shape[0], 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Flatten(),
        *_dense(6 * height * width, 50, classes),
    )


def _tanh_cnn(input_shape: Shape, classes: int) -> nn.Module:
    height, width = _sides("tanh-cnn", input_shape, 16, lambda side: ((side - 4) // 2 - 4) // 2)
    return nn.Sequential(
        *(nn.Conv2d(input_shape[0], 16, 8, 2, padding=2), nn.Tanh(), nn.MaxPool2d(2, 1)),
        *(nn.Conv2d(16, 32, 4, 2), nn.Tanh(), nn.MaxPool2d(2, 1)),
        *(nn.Flatten(), nn.Linear(32 * height * width, 32), nn.Tanh(), nn.Linear(32, classes)),
    )


def _cifar_cnn(input_shape: Shape, classes: int) -> nn.Module:
    def after(side: int) -> int:
        for _ in range(3):
            side = (side - 2) // 2
        return side

    height, width = _sides("cifar-cnn", input_shape, 22, after)
    layers: list[nn.Module] = []
    for before, maps in ((input_shape[0], 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(before, maps, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.2)]
    widths = (128 * height * width, 128, 64, 32, classes)
    return nn.Sequential(*layers, nn.Flatten(), *_dense(*widths))


def _lenet(input_shape: Shape, classes: int) -> nn.Module:
    """The LeNet of Zhu et al. (2019) and Zhao et al. (2020); all parameters uniform on ±½."""
    height, width = _sides("lenet", input_shape, 1, lambda side: (side + 3) // 4)
    layers: list[nn.Module] = []
    for before, stride in ((input_shape[0], 2), (12, 2), (12, 1)):
        layers += [nn.Conv2d(before, 12, 5, stride=stride, padding=5 // 2), nn.Sigmoid()]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(12 * height * width, classes))
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5)
    return model


_FACTORIES: Mapping[str, Callable[..., nn.Module]] = {
    "linear": _linear,
    "mlp": _mlp,
    "cnn": _cnn,
    "tanh-cnn": _tanh_cnn,
    "cifar-cnn": _cifar_cnn,
    "lenet": _lenet,
}
NAMES = tuple(_FACTORIES)


def _dense(*widths: int) -> Iterator[nn.Module]:
    """Dense layers with ReLU between them."""
    for i, (before, after) in enumerate(pairwise(widths)):
        if i:
            yield nn.ReLU()
        yield nn.Linear(before, after)


def _sides(
    name: str, input_shape: Shape, least: int, after: Callable[[int], int]
) -> tuple[int, int]:
    """Height and width of the feature maps that the dense layers see."""
    _, height, width = input_shape
    if min(height, width) < least:
        raise ValueError(
            f"model {name!r} needs images of at least {least}×{least} pixels, "
            f"got {height}×{width}: use model 'linear' or 'mlp', or larger images"
        )
    return after(height), after(width)


# The user's own models


def _named(name: str) -> Callable[..., nn.Module]:
    if name in _FACTORIES:
        return _FACTORIES[name]
    path, colon, attribute = name.partition(":")
    if not (path and colon and attribute):
        known = ", ".join(NAMES)
        raise ValueError(f"model must be one of {known} or 'package.module:factory', got {name!r}")
    try:
        found: Any = import_module(path)
    except (ImportError, ValueError, TypeError) as error:
        raise ValueError(
            f"model {name!r}: module {path!r} cannot be imported ({error}): "
            "check its name and that its folder is on PYTHONPATH"
        ) from error
    for step in attribute.split("."):
        if not hasattr(found, step):
            raise ValueError(f"model {name!r}: module {path!r} has no {attribute!r}")
        found = getattr(found, step)
    if isinstance(found, nn.Module) or not callable(found):
        raise ValueError(
            f"model {name!r} must name a function or class that returns an nn.Module, "
            f"it names {type(found).__name__}"
        )
    return found  # type: ignore[no-any-return]


def _keywords(factory: Callable[..., nn.Module], label: str) -> list[str]:
    """The keywords of ``_GIVEN`` that the factory takes."""
    try:
        taken = inspect.signature(factory).parameters
        takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values())
        names = [name for name in _GIVEN if takes_all or name in taken]
        inspect.signature(factory).bind(**dict.fromkeys(names))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"model {label!r} is given only {', '.join(_GIVEN)} as keywords ({error}): give its "
            "other parameters defaults"
        ) from error
    return names
