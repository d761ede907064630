"""From two states of a model to the update between them, and back.

    weights            w′ − w
    running means      (m′ − m)/√(v + η)
    running variances  ln((v′ + η)/(v + η)),  η = 10⁻⁵

v is the variance of the received model, beside the mean m. In these coordinates the statistics of
every layer move by about 1 at most, so that one public scale fits all, and no update makes a
variance negative. Integers and booleans are never part of an update.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.errors import StateMismatchError
from jopeq.random.portable import expm1, log
from jopeq.wire.entries import is_left_out, is_tensor
from jopeq.wire.scaling import MEANS, VARIANCES, is_statistic

Array = NDArray[np.float64]

_LEAST = 1e-5  # η, what normalisation layers add to a variance
_MOST = 40.0  # |ln| of the factor that an update may put on a variance


def state_update(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The update that training made, for ``Scheme.encode``: arrays or tensors as in ``after``.

    Both are states of one model (``state_dict()``): what the client received, and what it trained.

    >>> before = {"w": np.zeros(2), "bn.running_var": np.ones(1), "bn.steps": np.array(3)}
    >>> after = {"w": np.ones(2), "bn.running_var": np.full(1, 1.5), "bn.steps": np.array(9)}
    >>> update = state_update(before, after)
    >>> list(update), round(float(update["bn.running_var"][0]), 3)
    (['w', 'bn.running_var'], 0.405)
    """
    update = {}
    for name, value in before.items():
        if is_left_out(value):
            continue
        if name not in after:
            raise StateMismatchError(f"the trained state lacks tensor {name!r}")
        trained = after[name]
        if tuple(np.shape(trained)) != tuple(np.shape(value)) or is_left_out(trained):
            raise StateMismatchError(
                f"tensor {name!r} has shape {tuple(np.shape(value))} in the received state and "
                f"{tuple(np.shape(trained))} in the trained one, or is no float there"
            )
        if is_statistic(name):
            moved = moves(name, wide(value), wide(trained), variance_of(name, before))
            update[name] = as_kind_of(trained, moved)
        else:
            update[name] = trained - value
    return update


def updated_state(before: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    """``before`` with an update, or the mean of many, applied: a state of the model.

    The update is what ``Scheme.decode`` or ``aggregate`` returns. Tensors that the update lacks,
    and integers, stay as they are. Types and devices are those of ``before``.

    >>> before = {"w": np.zeros(2), "bn.running_var": np.ones(1), "bn.steps": np.array(3)}
    >>> after = updated_state(before, {"w": np.ones(2), "bn.running_var": np.full(1, -9.0)})
    >>> after["w"].tolist(), bool(after["bn.running_var"] > 0), int(after["bn.steps"])
    ([1.0, 1.0], True, 3)
    """
    unknown = [name for name in update if name not in before]
    if unknown:
        raise StateMismatchError(f"the update holds tensor {unknown[0]!r:.80}, not of this model")
    result = {}
    for name, value in before.items():
        if is_left_out(value) or name not in update:
            result[name] = value
            continue
        change = wide(update[name])
        if change.shape != tuple(np.shape(value)):
            raise StateMismatchError(
                f"tensor {name!r} has shape {change.shape} in the update, "
                f"expected {tuple(np.shape(value))}"
            )
        if is_statistic(name):
            moved = apply_move(name, wide(value), change, variance_of(name, before))
        else:
            moved = wide(value) + change
        result[name] = as_kind_of(value, moved, value.dtype)
    return result


def variance_of(name: str, state: Mapping[str, Any]) -> Array | None:
    """The running variance beside a running mean; None where the state has none."""
    for mean, variance in zip(MEANS, VARIANCES, strict=True):
        if name.endswith(mean):
            found = state.get(name.removesuffix(mean) + variance)
            if found is not None and np.shape(found) == np.shape(state[name]):
                return wide(found)
    return None


def moves(name: str, before: Array, after: Array, variance: Array | None) -> Array:
    """The update of one running statistic; whatever the floats are, the result is of this shape."""
    with np.errstate(all="ignore"):
        if not name.endswith(VARIANCES):
            return np.asarray((after - before) / _deviation(variance))
        low, high = np.maximum(before, 0.0) + _LEAST, np.maximum(after, 0.0) + _LEAST
        return np.asarray(np.where(np.isfinite(low + high), log(high / low), np.nan))


def apply_move(name: str, before: Array, update: Array, variance: Array | None) -> Array:
    """The inverse of ``moves``, the same bits everywhere; an update of 0 changes nothing."""
    with np.errstate(all="ignore"):
        if not name.endswith(VARIANCES):
            return np.asarray(before + update * _deviation(variance))
        positive = np.maximum(before, 0.0)
        factor = expm1(np.clip(update, -_MOST, _MOST))
        return np.asarray(np.maximum(positive + (positive + _LEAST) * factor, 0.0))


def _deviation(variance: Array | None) -> Any:
    return 1.0 if variance is None else np.sqrt(np.maximum(variance, 0.0) + _LEAST)


def wide(value: Any) -> Array:
    """An array or a tensor as float64 on the host."""
    if is_tensor(value):
        value = value.detach().cpu().double().numpy()
    return np.asarray(value, dtype=np.float64)


def as_kind_of(example: Any, values: Array, dtype: Any = None) -> Any:
    """``values`` as the kind of array that ``example`` is, in ``dtype`` or in float32."""
    if is_tensor(example):
        torch = sys.modules["torch"]
        made = torch.from_numpy(np.ascontiguousarray(values).reshape(values.shape))
        return made.to(device=example.device, dtype=torch.float32 if dtype is None else dtype)
    with np.errstate(all="ignore"):
        return values.astype(np.float32 if dtype is None else dtype)


def find_frozen(module: Any) -> tuple[str, ...]:
    """Names in its ``state_dict`` of what a PyTorch module does not train.

    Parameters without ``requires_grad``, and buffers of layers none of whose parameters trains.
    """
    found = []
    for prefix, layer in module.named_modules():
        own = dict(layer.named_parameters(recurse=False))
        still = [name for name, value in own.items() if not value.requires_grad]
        if own and len(still) == len(own):
            still += [name for name, _ in layer.named_buffers(recurse=False)]
        found += [f"{prefix}.{name}" if prefix else name for name in still]
    return tuple(found)
