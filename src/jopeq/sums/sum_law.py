"""The sum of rounded shares reveals what Gaussian noise would, up to bounded factors.

h clients each draw an integer from the discrete Gaussian of standard deviation σ about a point of
their own. Their sum is, up to a factor e^{±η} in every probability, a Gaussian value of variance
hσ² − s² that a discrete Gaussian of standard deviation s rounds: post-processing of the Gaussian
mechanism. Proof: docs/guarantees.md, section "records". Everything is computed with decimal
numbers, so that two machines that plan a sum find the same integers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_CONTEXT = Context(prec=45, rounding=ROUND_HALF_EVEN, Emin=-999_999, Emax=999_999)
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582")
_INFINITE = Decimal("Infinity")
_SHARE = Decimal(2) ** -12  # of ε, for each of the two parts of η over all entries
MAX_HONEST = 100_000  # beyond, terms of the series leave the exponents of decimal numbers
SIGMA_UNITS = 64  # standard deviations are multiples of 1/64
MAX_SIGMA = 8 * SIGMA_UNITS


def portable_decimals(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Compute with the digits and rounding of this module, whatever the app has chosen."""

    @wraps(function)
    def compute(*arguments: Parameters.args, **keywords: Parameters.kwargs) -> Result:
        with localcontext(_CONTEXT):
            return function(*arguments, **keywords)

    return compute


# The theta series


@portable_decimals
def rounding_excess(sigma: Decimal) -> Decimal:
    """ζ/(1 − ζ) ≥ −ln(1 − ζ): how far a discrete Gaussian's total can be from the Gaussian's.

    ζ = 2·Σ_{m≥1} q^{m²} ≤ 2q/(1 − q³) with q = e^{−2π²σ²}, since m² ≥ 3m − 2.
    """
    q = _nome(sigma)
    zeta = 2 * q / (1 - q**3)
    return zeta / (1 - zeta) if zeta < 1 else _INFINITE


@portable_decimals
def shares_excess(sigma: Decimal, honest: int) -> Decimal:
    """Ξ/(1 − Ξ) + h·ζ/(1 − ζ): the same for the sum of h shares.

    Ξ bounds the theta series of the dual of A_{h−1} but for its first term, over all its shells:

        Ξ ≤ Σ_{j≥1} t_j ,   t_j = (2h)^j · q^{j − min(j²/h, j/2)} .

    Up to J = ⌊h/2⌋ the logarithm of t_j is convex in j, so t_3…t_J are at most max(t_3, t_J); from
    there on the series is geometric.
    """
    q, wide, half = _nome(sigma), Decimal(2 * honest), honest // 2
    ratio = wide * q.sqrt()
    if not ratio < 1:
        return _INFINITE

    def term(j: int) -> Decimal:
        return wide**j * q ** (j - Decimal(j * j) / honest)

    total = ratio ** (half + 1) / (1 - ratio) + sum(map(term, range(1, min(half, 2) + 1)))
    if half >= 3:
        total += (half - 2) * max(term(3), term(half))
    each = rounding_excess(sigma)
    if not total < 1 or each == _INFINITE:
        return _INFINITE
    return honest * each + total / (1 - total)


def _nome(sigma: Decimal) -> Decimal:
    return (-2 * _PI * _PI * sigma * sigma).exp()


def least_sigma(excess: Callable[[Decimal], Decimal], most: Decimal) -> int | None:
    """The smallest multiple of 1/64 at which a falling excess is at most ``most``; None: beyond."""
    sigmas = range(1, MAX_SIGMA + 1)
    at = bisect_left(sigmas, True, key=lambda k: excess(Decimal(k) / SIGMA_UNITS) <= most)
    return sigmas[at] if at < MAX_SIGMA else None


@lru_cache(maxsize=4096)
@portable_decimals
def least_sigmas(epsilon: float, draws: int, honest: int) -> tuple[int, int] | None:
    """(σ, s) in units of 1/64, the least for which all ``draws`` entries cost 2κ ≤ ε/1024."""
    most = Decimal(epsilon) * _SHARE / draws
    share = least_sigma(lambda sigma: shares_excess(sigma, honest), most)
    rounding = least_sigma(rounding_excess, most)
    return None if share is None or rounding is None else (share, rounding)


# The statement


class SumPrivacy:
    """Bounds on what sums of at least ``honest`` shares tell, over all entries and rounds.

    σ and s are in units of 1/64. ``variation`` is the total variation between the drawn and the
    ideal law of one share of one entry. ``kappa`` bounds |ln| of the probabilities' ratio to the
    rounded Gaussian's, ``tau`` the total variation between what is drawn and the ideal law.
    ``variance`` is the Gaussian value's, hσ² − s²: where it is not positive, nothing is proven.
    """

    @portable_decimals
    def __init__(
        self, *, honest: int, share_sigma: int, rounding_sigma: int, draws: int, variation: Decimal
    ) -> None:
        sigma, rounding = (Decimal(one) / SIGMA_UNITS for one in (share_sigma, rounding_sigma))
        self.kappa = draws * (shares_excess(sigma, honest) + rounding_excess(rounding))
        self.tau = honest * draws * variation
        self.variance = honest * sigma**2 - rounding**2
