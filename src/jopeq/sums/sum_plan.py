"""How ``sum`` codes updates of one dimension: coordinates, bits, σ, bound, step, and their error.

Both ends compute the plan, from decimal numbers and from +, −, ×, ÷, √ alone: it is the same on
every machine. The search takes the least payload whose error is within 5% of the central
Gaussian's, with as much noise as missing and colluding clients leave over.

**Kept coordinates.** Coordinate i of k is ⌊(i·d + u)/k⌋ with u uniform on 0…d−1: every coordinate
of the update has the same chance k/d, so that d/k times what is kept is unbiased.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jopeq.errors import PlanError
from jopeq.noise.gaussian_rounding import GRID, GaussianRounding
from jopeq.random import portable
from jopeq.random.streams import SharedStream
from jopeq.sums.sum_law import (
    MAX_SIGMA,
    SIGMA_UNITS,
    SumPrivacy,
    largest_mu,
    least_sigmas,
    portable_decimals,
)

if TYPE_CHECKING:
    from jopeq.sums.secure_sum import SecureSum

MAX_BITS = 16
_AIMED = 1.045  # of the central Gaussian's error: what the search aims at, so that 1.05 holds
_WRAPPED = 0.05  # of the noise: the most error from wrapping that the plan chooses,
_MOST_WRAPPED = 0.5  # and that it accepts where ``bits`` are given
_MARGIN = 2.0  # standard deviations of the kept part's norm that are not clipped
_NO_ROOM = 1e-30
_FAR = 37.0  # standard deviations: the chance is below 10⁻³⁰⁰
_CHOICE_LANE = 2  # of the shared stream
_EIGHTHS = (
    *(1.0, 0.9170040432046712, 0.8408964152537145, 0.7711054127039704),
    *(0.7071067811865476, 0.6484197773255048, 0.5946035575013605, 0.5452538663326288),
)  # 2^{−i/8}


@dataclass(frozen=True)
class SumPlan:
    """How updates of one dimension are shared and summed, and what that gives.

    ``epsilon`` and ``delta`` are what is proven. ``wrap`` is the chance that the sum of an entry
    leaves 2^bits, if the mean of the updates is as long as ``largest_mean``·C. Wrapping costs
    accuracy and never privacy. Errors are E‖error of the mean‖²/C² if all clients take part and the
    same holds.
    """

    dimension: int
    kept: int
    bits: int
    sigma64: int  # of each share, in steps/64
    bound: int  # B, in steps/256
    step: float  # in the update's units
    epsilon: float
    delta: float
    wrap: float
    error: float
    central_error: float
    price: float  # error beside a central Gaussian's, for as much noise as the missing leave over

    @property
    def sigma(self) -> float:
        """σ, in steps."""
        return self.sigma64 / SIGMA_UNITS

    @property
    def payload_bits(self) -> int:
        """Of one share."""
        return self.kept * self.bits

    @property
    def bits_per_entry(self) -> float:
        """Of the update."""
        return self.payload_bits / self.dimension

    @property
    def dtype(self) -> type[np.uint8] | type[np.uint16]:
        """Of a share."""
        return np.uint8 if self.bits <= 8 else np.uint16

    @property
    def law(self) -> GaussianRounding:
        """What draws a share."""
        return _law(self.sigma64)

    def choose(self, shared: SharedStream) -> NDArray[np.int64] | None:
        """The kept coordinates, ascending; a coordinate can be twice among them. None: all."""
        if self.kept == self.dimension:
            return None
        words = shared.words64(lane=_CHOICE_LANE, start=0, count=self.kept)
        within = (words % np.uint64(self.dimension)).astype(np.int64)
        return (np.arange(self.kept, dtype=np.int64) * self.dimension + within) // self.kept


class Errors(NamedTuple):
    """Where the error of a mean comes from, in units of C²; the chance to wrap; the step in C."""

    noise: Any
    keeping: Any  # from coordinates that are left out
    wrapping: Any
    wrap: Any
    step: Any

    @property
    def total(self) -> Any:
        return self.noise + self.keeping + self.wrapping


def room_for(kept: int, bound: Any) -> Any:
    """What ‖v‖² may be before rounding to the grid, which adds k/6 and 4B at most, mostly."""
    return bound * bound - (kept / 6.0 + 4.0 * bound)


def wrapping_of(bits: Any, spread: Any) -> tuple[Any, Any]:
    """The squared error from wrapping of a sum of that variance, and the chance to wrap.

    A sum T beyond ±half is off by at most |T| + half ≤ 2|T|.
    """
    reach = np.minimum(0.5 * 2.0**bits / np.sqrt(spread), _FAR)
    density = portable.exp(-0.5 * reach * reach) * 0.3989422804014327
    tail = np.minimum(density / reach, 0.5)
    return 8.0 * spread * (reach * density + tail), 2.0 * tail


def errors_of(
    dimension: int, kept: int, sigma: Any, bound: Any, bits: Any, norm: float, clients: int
) -> Errors:
    """What these integers give, for arrays of them too."""
    share = kept / dimension
    clip = min(1.0, share * (1.0 + _MARGIN * math.sqrt(2.0 * (1.0 - share) / kept)))
    room = room_for(kept, bound)
    square = GRID * GRID * clip / np.where(room > 0.25 * bound * bound, room, _NO_ROOM)
    each = sigma * sigma + 1.0 / (6.0 * GRID * GRID)
    unit = dimension / kept * dimension * square / clients
    size = 1 << (dimension.bit_length() - 1)
    spread = clients * each + (clients * norm) ** 2 / (square * size)
    wrapping, wrap = wrapping_of(bits, spread)
    repeats = kept // math.gcd(dimension, kept)
    twice = share * (1.0 - 1.0 / (repeats * repeats)) / 3.0
    return Errors(
        noise=unit * each,
        keeping=norm * norm * (dimension / kept - 1.0 + twice),
        wrapping=unit / clients * wrapping,
        wrap=wrap,
        step=np.sqrt(square),
    )


@lru_cache(maxsize=64)
def _law(sigma64: int) -> GaussianRounding:
    return GaussianRounding(sigma64)


@portable_decimals
def mu_of(scheme: SecureSum, less: float = 0.0) -> float:
    """μ of one round of Gaussian noise with (1 − less)·(ε, δ) over all rounds, at a distance C."""
    share = 1 - Decimal(less)
    mu = largest_mu(Decimal(scheme.epsilon) * share, Decimal(scheme.delta) * share)
    each = float(mu) / math.sqrt(scheme.participations)
    return each if scheme.neighbours == "zeroed" else 0.5 * each


def _kept_to_try(scheme: SecureSum, dimension: int) -> Iterator[int]:
    """Numbers of coordinates, falling."""
    if scheme.kept is not None:
        yield max(1, min(dimension, math.ceil(scheme.kept * dimension)))
        return
    last = 0
    for halvings in range(dimension.bit_length()):
        for eighth in _EIGHTHS:
            kept = int(dimension * eighth / 2.0**halvings)
            if kept and kept != last:
                yield kept
            last = kept


class _Option(NamedTuple):
    payload: int
    price: float
    kept: int
    bits: int
    sigma64: int
    rounding64: int
    wraps: float  # error from wrapping beside that of noise


def _options(scheme: SecureSum, dimension: int, bits: Sequence[int]) -> list[_Option]:
    """The best σ for every number of coordinates and bits."""
    aim = scheme.central_error(dimension) * scheme.clients / scheme.honest
    mu = mu_of(scheme, 2.0**-10)
    found: list[_Option] = []
    for kept in _kept_to_try(scheme, dimension):
        least = least_sigmas(scheme.epsilon, kept * scheme.participations, scheme.honest)
        if least is None:
            continue
        sigma64 = np.arange(least[0], MAX_SIGMA + 1, 2)
        sigma, rounding = sigma64[:, None] / SIGMA_UNITS, least[1] / SIGMA_UNITS
        variance = scheme.honest * sigma * sigma - rounding * rounding
        bound = GRID * mu * np.sqrt(np.maximum(variance, 0.0))
        errors = errors_of(
            dimension, kept, sigma, bound, np.array(bits, dtype=np.float64), scheme.largest_mean,
            scheme.clients,
        )  # fmt: skip
        if found and errors.keeping > (_AIMED - 1.0) * aim:
            break
        rows = np.argmin(errors.total, axis=0)
        for column, row in enumerate(rows.tolist()):
            price = float(errors.total[row, column]) / aim
            wraps = float(errors.wrapping[row, column] / errors.noise[row, 0])
            number, chosen = bits[column], int(sigma64[row])
            found.append(_Option(kept * number, price, kept, number, chosen, least[1], wraps))
    if not found:
        raise PlanError(
            f"no plan for {dimension} entries, {scheme.honest} honest shares and "
            f"epsilon={scheme.epsilon}: raise epsilon, or lower participations"
        )
    return found


@lru_cache(maxsize=256)
@portable_decimals
def plan_for(scheme: SecureSum, dimension: int) -> SumPlan:
    """The plan of least payload among those of good price."""
    every = range(1, MAX_BITS + 1)
    options = _options(scheme, dimension, every if scheme.bits is None else [scheme.bits])
    held = [option for option in options if option.wraps <= _WRAPPED]
    if not held and scheme.bits is not None:
        held = [option for option in options if option.wraps <= _MOST_WRAPPED]
    if not held:
        wider = options if scheme.bits is None else _options(scheme, dimension, every)
        enough = [option.bits for option in wider if option.wraps <= _WRAPPED]
        more = f"more than {MAX_BITS} would, so lower clients, epsilon or largest_mean"
        remedy = f"bits={min(enough)} would" if enough else more
        raise PlanError(
            f"bits={scheme.bits or MAX_BITS} cannot hold the sum of {scheme.clients} clients for "
            f"{dimension} entries, if their mean is as long as "
            f"largest_mean={scheme.largest_mean:g} of clip: {remedy}",
            code="room",
        )
    # the least payload among the prices aimed at, or else among those near the least
    aim = max(_AIMED, 1.01 * min(option.price for option in held))
    return _settle(scheme, dimension, min(option for option in held if option.price <= aim))


def _settle(scheme: SecureSum, dimension: int, option: _Option) -> SumPlan:
    """The plan of these integers: the largest B that keeps (ε, δ), and what follows from it."""
    kept, sigma64 = option.kept, option.sigma64
    privacy = SumPrivacy(
        honest=scheme.honest,
        share_sigma=sigma64,
        rounding_sigma=option.rounding64,
        entries=kept,
        rounds=scheme.participations,
        distance=Decimal(0),
        variation=_law(sigma64).variation,
    )
    apart = 1 if scheme.neighbours == "zeroed" else 2
    bound = int(privacy.largest_distance(scheme.epsilon, scheme.delta) * GRID / apart)
    if not room_for(kept, bound) > 0.25 * bound * bound:
        tables = (1 + Decimal(scheme.epsilon).exp()) * privacy.tau
        if 2 * tables > Decimal(scheme.delta):
            raise PlanError(
                f"rounding the tables of {scheme.honest} honest shares of {kept} entries in "
                f"{scheme.participations} rounds takes {float(tables):.2g} of "
                f"delta={scheme.delta:g}: lower epsilon, clients, participations or kept, or raise "
                "delta",
                code="tables",
            )
        raise PlanError(
            f"{kept} entries need more than {GRID} places a step: lower kept or participations, or "
            "raise epsilon",
            code="tables",
        )
    errors = errors_of(
        dimension, kept, sigma64 / SIGMA_UNITS, bound, float(option.bits), scheme.largest_mean,
        scheme.clients,
    )  # fmt: skip
    privacy = replace(privacy, distance=Decimal(apart * bound) / GRID)
    central = scheme.central_error(dimension)
    return SumPlan(
        dimension=dimension,
        kept=kept,
        bits=option.bits,
        sigma64=sigma64,
        bound=bound,
        step=float(errors.step) * scheme.clip,
        epsilon=privacy.epsilon(scheme.delta, scheme.epsilon),
        delta=scheme.delta,
        wrap=float(errors.wrap),
        error=float(errors.total),
        central_error=central,
        price=float(errors.total) * scheme.honest / (central * scheme.clients),
    )
