"""The costs of a fit and what to expect of it, said before any ε is spent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jopeq.models.inference import BURNED, LeastSquares
from jopeq.models.prediction import Heads
from jopeq.privacy.guarantee import digits_up

if TYPE_CHECKING:
    from jopeq.models.model import Model

_SPREAD = 0.5  # of a number between bounds −1 and 1: a quarter of the range
_WIDE, _ENOUGH, _SOME = 1.5, 10.0, 3.0


@dataclass(frozen=True)
class ModelPlan:
    """Messages, bytes, bits, noise, the standard error to expect, and a verdict.

    Standard errors are of a coefficient times the standard deviation of its column, if that is a
    quarter of the column's bounds and the model explains little; ``without_privacy`` for
    comparison. ``noise`` is the standard error of an entry of a sum, in records.
    """

    messages: int
    entries: tuple[int, ...]  # of every sum
    bits: tuple[int, ...]  # of an entry
    bytes_up: int  # from each hospital, in all
    bytes_down: int  # to each hospital, in all
    noise: float
    epsilon: float
    delta: float
    standard_error: float | None
    without_privacy: float | None
    verdict: str

    def __str__(self) -> str:
        bits = "–".join(map(str, sorted({min(self.bits), max(self.bits)})))
        ways = f"{_size(self.bytes_up)} from each hospital, {_size(self.bytes_down)} to it"
        spent = f"ε = {digits_up(self.epsilon)} at δ = {self.delta:g} of every record"
        lines = [
            f"messages: {self.messages}, {ways}, {bits} bits an entry",
            f"privacy: {spent}; noise of {self.noise:.3g} records in an entry of a sum",
        ]
        if self.standard_error is not None:
            plain = f"({self.without_privacy:.2g} without privacy)"
            about = f"about {self.standard_error:.2g} per standard deviation of a column"
            lines.append(f"standard error: {about} {plain}")
        return "\n".join([*lines, f"verdict: {self.verdict}"])


def plan_model(model: Model) -> ModelPlan:
    """The plan of a model for a cohort of all hospitals."""
    method, steps = model.method, range(model.method.messages)
    plans = [model.plan_of(step) for step in steps]
    sent = [math.prod(shape) for step in steps for shape in method.shapes(step).values()]
    error, plain, verdict = _expect(model)
    return ModelPlan(
        messages=len(steps),
        entries=tuple(plan.dimension for plan in plans),
        bits=tuple(plan.bits for plan in plans),
        bytes_up=sum(-(-plan.payload_bits // 8) for plan in plans),
        bytes_down=8 * sum(sent),
        noise=model.noise_of(0),
        epsilon=model.epsilon_after([1] * len(steps)),
        delta=model.delta,
        standard_error=error,
        without_privacy=plain,
        verdict=verdict,
    )


def _expect(model: Model) -> tuple[float | None, float | None, str]:
    """(standard error, that without privacy, verdict)."""
    method, noise, size = model.method, model.noise_of(0), model.method.size
    if isinstance(method, Heads) or model.goal == "prediction":
        strength = model.records / (noise * math.sqrt(size))
        rough = "predictions will be rough" if strength >= _SOME else "noise: add records or ε"
        return None, None, "enough patients" if strength >= _ENOUGH else rough
    residual, scale, slope, balance, averaged = _SPREAD, 1.0, 1.0, 1.0, 1
    if not isinstance(method, LeastSquares):
        family, averaged = method.family, method.messages - BURNED
        scale, slope, balance = family.scale, family.null[1], family.balance
        residual = math.sqrt(slope)
    # of a coefficient, in units of its column's standard deviation: sampling, and noise
    information = model.records * slope * _SPREAD
    plain = residual / slope / math.sqrt(model.records)
    spread = noise * scale * model.design.length / math.sqrt(averaged)
    error = math.hypot(plain, spread / information)
    edge = spread / balance * math.sqrt(2.0 * size) * model.design.length
    levels = max(len(one.labels) for one in model.columns)  # of which each has its share
    if model.records * slope * min(_SPREAD**2, 1.0 / max(1, levels - 1)) < edge:
        verdict = f"noise: take fewer columns than {size - 1}, more records or a larger epsilon"
    elif error > _WIDE * plain:
        verdict = f"intervals will be wide, {error / plain:.1f} times those without privacy"
    else:
        verdict = "enough patients"
    return error, plain, verdict


def _size(count: int) -> str:
    units = (unit for unit in ((1e6, "MB"), (1e3, "kB")) if count >= unit[0])
    size, name = next(units, (1, "bytes"))
    return f"{count / size:.0f} {name}" if size == 1 else f"{count / size:.1f} {name}"
