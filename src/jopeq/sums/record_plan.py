"""How ``records`` codes totals of one dimension: σ, bound, bits, step, and what they cost.

docs/guarantees.md, section "records", proves what is computed here: the distance of two totals on
the grid, and the shares of ε and δ that are put by for all but the Gaussian mechanism. Every number
that both ends must agree on comes from decimal numbers, or from +, −, ×, ÷, √ alone; the noise
multiplier comes from the accountant, on a coarse grid.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from jopeq.errors import PlanError
from jopeq.noise.gaussian_rounding import GaussianRounding
from jopeq.random import portable
from jopeq.sums.record_accounting import (
    RecordRounds,
    epsilon_of,
    least_multiplier,
    multiplier_below,
)
from jopeq.sums.shares import check_clients, check_dimension
from jopeq.sums.sum_law import MAX_SIGMA, SIGMA_UNITS, SumPrivacy, least_sigmas, portable_decimals

if TYPE_CHECKING:
    from jopeq.sums.record_sum import RecordSum

RECORD_GRID = 4096  # places in a step
FINE = 256  # parts of a place that a private byte decides between
MAX_RECORD_BITS = 32
SAMPLINGS = (0.01, 0.02, 0.05, 0.1, 0.14, 0.2, 0.5, 1.0)  # that plans and remedies propose
_FLOAT = Decimal(2) ** -53
_MARGIN = 2.0**-9  # of ε: two machines may find different last digits
_KAPPA = 2.0**-11  # of ε, for all κ: ``least_sigmas`` keeps to it
_RARE = 2.0**-10  # of δ, for distances beyond the bound; as much for samples that are cut
_TABLES = (2.0**-6, 2.0**-3, 2.0**-1)  # of δ, for the tables: the first that is enough
_AIMED = 1.05  # of the central Gaussian's error
_WRAPPED = 0.05  # of the noise: the most error from wrapping that a plan chooses,
_MOST_WRAPPED = 0.5  # and that it accepts where ``bits`` are given
_FAR = 37.0  # standard deviations: the chance is below 10⁻³⁰⁰
_SPREAD = 6.0  # standard deviations by which a sample may exceed the expected batch


@dataclass(frozen=True)
class RecordPlan:
    """How totals of one dimension are shared and summed by ``clients`` hospitals.

    ``epsilon`` and ``delta`` are what is proven for a record over all rounds. Errors are
    E‖error of the mean row‖²/C².
    """

    dimension: int
    clients: int
    honest: int  # h: shares whose noise the server surely does not know
    bits: int
    sigma64: int  # of each share, in steps/64
    bound: int  # B: places for a row of norm C
    step: float  # in the rows' units
    noise_multiplier: float  # noise of honest shares beside the distance of one record
    epsilon: float
    delta: float
    error: float
    central_error: float
    price: float  # error beside a central Gaussian's, for as much noise as missing hospitals leave

    @property
    def sigma(self) -> float:
        """σ of each share, in steps."""
        return self.sigma64 / SIGMA_UNITS

    @property
    def payload_bits(self) -> int:
        """Bits of one share."""
        return self.dimension * self.bits

    @cached_property
    def dtype(self) -> type[np.unsignedinteger[Any]]:
        return np.uint8 if self.bits <= 8 else np.uint16 if self.bits <= 16 else np.uint32

    @cached_property
    def law(self) -> GaussianRounding:
        return _law(self.sigma64)

    @cached_property
    def integers(self) -> tuple[int | float, ...]:
        """The numbers that two ends must agree on besides the scheme."""
        settled = self.bits, self.sigma64, self.bound, self.noise_multiplier
        return (self.dimension, self.clients, *settled)


@lru_cache(maxsize=32)
def _law(sigma64: int) -> GaussianRounding:
    return GaussianRounding(sigma64, RECORD_GRID)


# The proof's figures


@portable_decimals
def capacity_of(most_records: int, sampling: float, chance: Decimal) -> int:
    """Return the least S with P(Bin(n, q) ≥ S) ≤ chance by Chernoff's bound, else n itself."""
    if sampling >= 1.0:
        return most_records
    q, sizes = Decimal(sampling), range(int(most_records * sampling) + 1, most_records)

    def is_rare(size: int) -> bool:
        a = Decimal(size) / most_records
        rest = (1 - a) * ((1 - a) / (1 - q)).ln()
        return most_records * (a * (a / q).ln() + rest) >= -chance.ln()

    return sizes.start + bisect_left(sizes, True, key=is_rare)


@portable_decimals
def distance_of(
    bound: int, entries: int, rows: int, batch_dependence: float, tau: Decimal
) -> Decimal:
    """‖D‖: how many places one record moves a total of at most ``rows`` rows, but for τ.

    Each other row moves by ``batch_dependence`` clips at most. Takes the smaller of two bounds:
    Hoeffding's for the private bytes, and the one for bytes at their worst.
    """
    roundings = 2 * (entries - 1).bit_length() + 8  # of floats, one after the other
    root = Decimal(entries).sqrt()
    apart = bound * (1 + rows * (Decimal(batch_dependence) + 2 * roundings * _FLOAT)) + root / FINE
    slack = _slack(tau) * (2 * apart + root)
    likely = (apart * apart + Decimal(entries) / 4 + slack).sqrt()
    return min(likely, apart + root)


def _slack(tau: Decimal) -> Decimal:
    return (-tau.ln() / 2).sqrt()


def _distance(scheme: RecordSum, bound: int, entries: int) -> Decimal:
    return distance_of(bound, entries, scheme.capacity(), scheme.batch_dependence, tau_of(scheme))


def _estimate_bounds(scheme: RecordSum, radius: Any, entries: int) -> Any:
    """The largest B whose distance is within each radius, in floats: for the search alone."""
    root, slack = math.sqrt(entries), float(_slack(tau_of(scheme)))
    square = radius * radius - entries / 4.0 - slack * root + slack * slack
    apart = np.maximum(np.sqrt(np.maximum(square, 0.0)) - slack, radius - root)
    return (apart - root / FINE) / (1.0 + scheme.capacity() * scheme.batch_dependence)


# What is put by of ε and δ


@portable_decimals
def tau_of(scheme: RecordSum) -> Decimal:
    """τ: the chance, a round and a copy, that a distance is beyond its bound; also to be cut."""
    return Decimal(scheme.delta) * Decimal(_RARE) / (scheme.hospitals_per_person * scheme.sums)


def rounds_of(scheme: RecordSum, multiplier: float, tables: float, rounds: int) -> RecordRounds:
    """The rounds of a scheme, as the accountant takes them."""
    return RecordRounds(
        multiplier=multiplier,
        sampling=scheme.sampling,
        hospitals_per_person=scheme.hospitals_per_person,
        rounds=rounds,
        kappa=_KAPPA * scheme.epsilon / scheme.sums,
        tau=2.0 * _RARE * scheme.delta / scheme.sums,
        variation=tables * scheme.delta / (1.0 + math.exp(scheme.epsilon)) / scheme.sums,
    )


def _least_multiplier(scheme: RecordSum, epsilon: float, delta: float) -> float:
    given = epsilon, delta, scheme.sampling, scheme.sums
    return least_multiplier(*given, scheme.hospitals_per_person)


def _multiplier(scheme: RecordSum, tables: float) -> float:
    """The least multiplier with what is left of ε and δ."""
    epsilon = scheme.epsilon * (1.0 - _MARGIN - 2.0 * _KAPPA)
    delta = scheme.delta * (1.0 - 2.0 * _RARE - tables) * math.exp(-_KAPPA * scheme.epsilon)
    found = _least_multiplier(scheme, epsilon, delta)
    if math.isinf(found):
        told = f"no noise gives epsilon={scheme.epsilon:g} in {scheme.sums} sums"
        raise PlanError(f"{told}: lower rounds or sampling, or raise epsilon")
    return found


@lru_cache(maxsize=256)
def tables_of(scheme: RecordSum, dimension: int) -> float:
    """The part of δ that is put by for the tables: one for the cohorts of a run, of all sizes."""
    shared = _TABLES[:1] if scheme.evaluations else _TABLES  # rounds and evaluations: one for both
    for tables in shared:
        _, sigma64 = _choose(scheme, dimension, scheme.clients, _multiplier(scheme, tables))
        if _tables_cost(scheme, dimension, scheme.honest(), sigma64) <= tables * scheme.delta:
            return tables
    raise PlanError(
        f"rounding the tables of {scheme.honest()} honest shares of {dimension} entries in "
        f"{scheme.sums} sums takes more than {shared[-1]:g} of delta={scheme.delta:g}: lower "
        "epsilon or rounds, raise delta, or leave evaluations out",
        code="tables",
    )


def _privacy(scheme: RecordSum, dimension: int, honest: int, sigma64: int) -> SumPrivacy:
    least = least_sigmas(scheme.epsilon, dimension * scheme.sums, honest)
    if least is None or sigma64 < least[0]:
        told = f"{honest} honest shares of sigma={sigma64 / SIGMA_UNITS:g} steps"
        raise ValueError(f"{told} do not add up to a Gaussian: raise sigma")
    return SumPrivacy(
        honest=honest,
        share_sigma=sigma64,
        rounding_sigma=least[1],
        draws=dimension * scheme.sums,
        variation=_law(sigma64).variation,
    )


def _tables_cost(scheme: RecordSum, dimension: int, honest: int, sigma64: int) -> float:
    """(1 + e^ε)·T·h·k·v."""
    tau = _privacy(scheme, dimension, honest, sigma64).tau
    return (1.0 + math.exp(scheme.epsilon)) * float(tau)


# The search


def _wrapping(bits: Any, spread: Any) -> Any:
    """The squared error from wrapping of a sum of that variance, which never costs privacy.

    A sum T beyond ±half is off by at most |T| + half ≤ 2|T|.
    """
    reach = np.minimum(0.5 * 2.0**bits / np.sqrt(spread), _FAR)
    density = portable.exp(-0.5 * reach * reach) * 0.3989422804014327
    tail = np.minimum(density / reach, 0.5)
    return 8.0 * spread * (reach * density + tail)


def _sizes(scheme: RecordSum, dimension: int, clients: int, sigma: Any, bound: Any) -> Any:
    """(step in C, noise of an entry of the total in steps², its variance with the signal)."""
    batch = scheme.expected_batch
    norm = scheme.largest_mean * min(scheme.records, batch + _SPREAD * math.sqrt(batch))
    step = RECORD_GRID / bound
    noise = clients * (sigma * sigma + 0.25 / RECORD_GRID**2)
    return step, noise, noise + (norm / step) ** 2 / (1 << (dimension.bit_length() - 1))


def _choose(scheme: RecordSum, dimension: int, clients: int, multiplier: float) -> tuple[int, int]:
    """(bits, σ·64): the fewest bits of good price, or those that were asked for."""
    honest, central = scheme.honest(clients), _central_multiplier(scheme)
    least = least_sigmas(scheme.epsilon, dimension * scheme.sums, honest)
    sigma64 = np.arange(MAX_SIGMA if least is None else least[0], MAX_SIGMA + 1, 2)
    sigma = sigma64 / SIGMA_UNITS
    rounding = MAX_SIGMA if least is None else least[1] / SIGMA_UNITS
    variance = np.maximum(honest * sigma * sigma - rounding * rounding, 0.0)
    radius = RECORD_GRID * np.sqrt(variance) / multiplier
    bound = _estimate_bounds(scheme, radius, dimension)
    is_good = (bound > 0.25 * radius) & (bound >= 1.0)
    if not is_good.any():
        raise _too_fine(scheme, dimension, float(radius.max()))
    sigma64, sigma, bound = sigma64[is_good], sigma[is_good, None], bound[is_good, None]
    bits = np.arange(1, MAX_RECORD_BITS + 1)
    step, noise, spread = _sizes(scheme, dimension, clients, sigma, bound)
    wrapping = _wrapping(bits.astype(np.float64), spread)
    total = step * step * (noise + wrapping)
    best = np.argmin(total, axis=0), bits - 1  # of σ, for each number of bits
    price = total[best] * honest / (clients * central * central)
    wraps = wrapping[best] / noise[best[0], 0]  # error from wrapping beside that of noise
    is_held = wraps <= _WRAPPED
    asked = MAX_RECORD_BITS if scheme.bits is None else scheme.bits
    chosen = asked - 1 if wraps[asked - 1] <= _MOST_WRAPPED else None
    if scheme.bits is None:
        is_fine = is_held & (price <= max(_AIMED, 1.01 * price[is_held].min(initial=math.inf)))
        chosen = int(np.argmax(is_fine)) if is_held.any() else None
    if chosen is not None:
        return chosen + 1, int(sigma64[best[0][chosen]])
    more = MAX_RECORD_BITS + 8 if scheme.bits is None else MAX_RECORD_BITS
    more = min(bits[is_held & (bits > asked)].tolist(), default=more)
    halves = [more - asked + k for k in range(8)]
    raise _Refusal(
        f"bits={asked} cannot hold the sum of {scheme.records} rows of {dimension} entries, if "
        f"their mean is as long as largest_mean={scheme.largest_mean:g} of clip",
        "room",
        [{"bits": more}],
        [{"records": scheme.records >> k} for k in halves],
        [{"largest_mean": scheme.largest_mean / 2**k} for k in halves],
    )


class _Refusal(PlanError):  # noqa: N818 (``plan_records`` makes a ``PlanError`` of it)
    """No plan fits. Each of ``remedies`` lists changes of the scheme, the smallest first."""

    def __init__(self, reason: str, code: str, *remedies: list[dict[str, Any]]) -> None:
        super().__init__(reason, code=code)
        self.remedies = remedies


def _too_fine(scheme: RecordSum, dimension: int, radius: float) -> _Refusal:
    """Why the grid is too coarse for so much noise, and what may do."""
    root, slack = math.sqrt(dimension), float(_slack(tau_of(scheme)))
    needed = math.sqrt((dimension / 4.0 + slack * root) * 1.2) + slack
    ratio = max(1e-9, radius / needed)  # of multipliers, which grow with √rounds and with sampling
    rounds, batch = int(scheme.rounds * min(1.0, ratio * ratio)), scheme.expected_batch
    smaller = [q for q in reversed(SAMPLINGS) if q < scheme.sampling * min(1.0, 1.2 * ratio)]
    return _Refusal(
        f"{dimension} entries in {scheme.rounds} rounds need more than {RECORD_GRID} places a step "
        f"for epsilon={scheme.epsilon:g}",
        "tables",
        [{"rounds": rounds >> k} for k in range(4)],
        [{"records": math.ceil(batch / q), "sampling": q} for q in smaller],
        [{"epsilon": float(f"{scheme.epsilon / ratio * 2**k:.1e}")} for k in range(4)],
    )


def _central_multiplier(scheme: RecordSum) -> float:
    """Just below what a trusted server needs for (ε, δ)."""
    return multiplier_below(_least_multiplier(scheme, scheme.epsilon, scheme.delta))


# Plans


@lru_cache(maxsize=256, typed=True)
def plan_records(
    scheme: RecordSum, dimension: int, clients: int | None, fixed: str = ""
) -> RecordPlan:
    """The plan of a cohort; with "recover" all cohorts share one.

    A refusal names changes that were tried and have a plan, but none of the parameter ``fixed``.
    """
    dimension, clients = check_dimension(dimension), check_clients(scheme, clients)
    if scheme.dropouts == "recover":
        clients = scheme.clients
    try:
        return fit_records(scheme, dimension, clients)
    except _Refusal as refusal:
        found = []
        for changes in refusal.remedies:
            for change in (one for one in changes if fixed not in one):
                with suppress(ValueError):
                    fit_records(replace(scheme, **change), dimension, clients)
                    found.append(" with ".join(f"{key}={value}" for key, value in change.items()))
                    break
        remedy = f"{' or '.join(found)} would do" if found else "take fewer entries"
        raise PlanError(f"{refusal}: {remedy}", code=refusal.code) from None


@lru_cache(maxsize=256)
@portable_decimals
def fit_records(scheme: RecordSum, dimension: int, clients: int) -> RecordPlan:
    """The plan of fewest bits among those of good price."""
    multiplier = _multiplier(scheme, tables_of(scheme, dimension))
    bits, sigma64 = _choose(scheme, dimension, clients, multiplier)
    privacy = _privacy(scheme, dimension, scheme.honest(clients), sigma64)
    radius = RECORD_GRID * privacy.variance.sqrt() / Decimal(multiplier)
    bounds = range(1, int(radius) + 1)  # the largest whose distance is within the radius
    bound = bisect_left(bounds, True, key=lambda one: _distance(scheme, one, dimension) > radius)
    return settle(scheme, (dimension, clients, bits, sigma64, bound, multiplier))


@lru_cache(maxsize=256)
@portable_decimals
def epsilon_left(scheme: RecordSum, dimension: int, honest: int) -> float:
    """ε of all rounds against whoever knows the noise of all but so many shares of a sum.

    Of the largest cohort, whose shares have the least noise; inf where so few shares do not add up
    to a Gaussian, or ε is above 64 times the scheme's or above 700.
    """
    plan = scheme.plan(dimension)
    try:
        privacy = _privacy(scheme, dimension, honest, plan.sigma64)
    except ValueError:
        return math.inf
    apart = _distance(scheme, plan.bound, dimension)
    run = replace(
        rounds_of(scheme, 1.0, 0.0, scheme.sums),
        multiplier=multiplier_below(float(RECORD_GRID * privacy.variance.sqrt() / apart)),
        variation=float(privacy.tau) / scheme.sums,
    )
    scales = (min(scheme.epsilon * 2.0**k, 700.0) for k in range(7))  # e^710 is no float
    found = (epsilon_of((run,), scheme.delta, scale) for scale in scales)
    return next(filter(math.isfinite, found), math.inf)


@portable_decimals
def settle(scheme: RecordSum, integers: tuple[int | float, ...]) -> RecordPlan:
    """The plan of these integers; refused unless (ε, δ) holds. A hospital rests on this alone."""
    dimension, clients, bits, sigma64, bound = map(int, integers[:5])
    multiplier, tables = float(integers[5]), tables_of(scheme, dimension)
    honest = scheme.honest(clients)
    privacy = _privacy(scheme, dimension, honest, sigma64)
    apart = _distance(scheme, bound, dimension)
    holds = (
        bound >= 1
        and apart * Decimal(multiplier) <= RECORD_GRID * privacy.variance.sqrt()
        and privacy.kappa <= Decimal(_KAPPA) * Decimal(scheme.epsilon)
        and _tables_cost(scheme, dimension, honest, sigma64) <= tables * scheme.delta
    )
    run = rounds_of(scheme, multiplier, tables, scheme.sums)
    epsilon = epsilon_of((run,), scheme.delta, scheme.epsilon) if holds else math.inf
    if not epsilon <= scheme.epsilon:
        told = f"plan {integers} keeps no epsilon={scheme.epsilon:g}, delta={scheme.delta:g}"
        raise ValueError(f"{told}: use the same versions of jopeq and dp-accounting on all ends")
    step, noise, spread = _sizes(scheme, dimension, clients, sigma64 / SIGMA_UNITS, bound)
    scale = dimension / scheme.expected_batch**2
    error = float(scale * step * step * (noise + _wrapping(float(bits), spread)))
    central = scale * _central_multiplier(scheme) ** 2
    return RecordPlan(
        dimension=dimension,
        clients=clients,
        honest=honest,
        bits=bits,
        sigma64=sigma64,
        bound=bound,
        step=step * scheme.clip,
        noise_multiplier=multiplier,
        epsilon=epsilon,
        delta=scheme.delta,
        error=error,
        central_error=central,
        price=error * honest / (clients * central),
    )


# Proposals. Smaller samples cost less computing and raise the noise of a mean: for each number of
# rounds the smallest sampling is taken that is nearly as good as full batches

ROUNDS = (10, 30, 60, 100)
_DEARER = 1.25  # than full batches: a sample may make a round's squared error so much larger
_LEAST_ROUNDS = 30  # training by gradients needs as many, private or not
SIGNAL = 0.1
"""Length of the mean gradient in units of the clip that is assumed for a verdict on records.

Gradients of records point in many ways, and their mean gets shorter as a model learns. Ten
hospitals at ε = 1 fit the verdict: 60,000 digits (0.002) lose 0.1 points, 4,000 digits (0.5) lose
1.5, 400 patients (0.5) lose 3."""


@dataclass(frozen=True)
class Proposal:
    """A ``RecordSum`` for a job, its plan, and why these numbers; ``options`` were considered."""

    options: tuple[tuple[RecordSum, RecordPlan], ...]

    @cached_property
    def _chosen(self) -> tuple[RecordSum, RecordPlan]:
        enough = [option for option in self.options if option[0].rounds >= _LEAST_ROUNDS]
        clear = [option for option in enough if option[1].error <= SIGNAL**2]
        return [*enough[:1], *clear][-1] if enough else self.options[-1]

    @property
    def scheme(self) -> RecordSum:
        """The option of most rounds whose mean gradients stand out of the noise, else of fewest."""
        return self._chosen[0]

    @property
    def plan(self) -> RecordPlan:
        """The scheme's plan for the whole cohort."""
        return self._chosen[1]

    @property
    def why(self) -> str:
        """Why these rounds, sampling, bits and threshold, a line for each."""
        scheme, plan = self._chosen
        listed = ", ".join(f"{plan.error:.2g} ({one.rounds})" for one, plan in self.options)
        stands = "stands out of" if plan.error <= SIGNAL**2 else "is below"
        sampled = f"the smallest sample whose squared error is at most {_DEARER:g} times that of "
        sampled += "full batches"
        if scheme.sampling == 1.0:
            sampled = "every record is in every round: smaller samples need more noise"
        return (
            f"rounds={scheme.rounds}: the noise over a whole run hardly depends on the rounds, and "
            f"training converges in {_LEAST_ROUNDS} to {ROUNDS[-1]}; a round's mean gradient of "
            f"{SIGNAL:g}·C {stands} its noise, whose error/C² is (rounds): {listed}.\n"
            f"sampling={scheme.sampling:g}: {sampled}.\n"
            f"bits={plan.bits}: the fewest whose error is within 5% of a central Gaussian's.\n"
            f"threshold={scheme.threshold}: half of the {scheme.clients} hospitals, or "
            f"colluding + 2. A whole cohort answers, so a low threshold costs no noise."
        )

    def __str__(self) -> str:
        return f"{self.scheme}\n{self.why}"


def fit_rounds(
    full: RecordSum, dimension: int, rounds: Iterable[int]
) -> tuple[tuple[RecordSum, RecordPlan], ...]:
    """For each number of rounds the smallest sampling that is nearly as good as full batches.

    Where that sampling has no plan, the largest that has one is taken. Rounds that no plan fits are
    left out; where none fits, the last refusal is raised.
    """
    place, scheme = len(SAMPLINGS) - 1, None
    found: list[tuple[RecordSum, RecordPlan]] = []
    dimension = check_dimension(dimension)
    for count in sorted(set(rounds)):
        here = replace(full, rounds=count)
        # more rounds allow smaller samples, so the search goes on where it was
        while place and _ratio(here, SAMPLINGS[place - 1]) <= math.sqrt(_DEARER):
            place -= 1
        for sampling in sorted(SAMPLINGS, key=lambda q: (q != SAMPLINGS[place], -q)):
            if sampling * full.records >= 1.0:
                scheme = replace(here, sampling=sampling)
                with suppress(ValueError):
                    found.append((scheme, fit_records(scheme, dimension, full.clients)))
                    break
    if scheme is None:
        raise ValueError("rounds must name at least one number")
    if not found:
        scheme.plan(dimension)  # raises, with what would do
    return tuple(found)


def _ratio(full: RecordSum, sampling: float) -> float:
    """Noise of a mean compared with that of full batches."""
    given, rounds = (full.epsilon, full.delta), full.rounds
    sampled, whole = (least_multiplier(*given, q, rounds, 1) / q for q in (sampling, 1.0))
    return sampled / whole
