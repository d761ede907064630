"""A privacy statement: whom it protects, against whom, what it covers and what it rests on."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, Context, Decimal

from jopeq.checks import check_count, check_delta, check_number
from jopeq.privacy.accounting import Composition, Mechanism

ADVERSARIES = {
    "server": "the server, who knows payload, dither, scale and scheme",
    "decoded": "an observer of only the decoded update",
    "network": "an eavesdropper who sees the payload but lacks the key",
    "sum": "a server that learns only the sum of a cohort's integers",
    "model": "an observer of the trained models, who does not learn who took part",
}
STRENGTHS = {1.0: "strong", 2.0: "good", 4.0: "moderate", 10.0: "weak"}
"""Words for ε of a person, up to each bound (docs/choose-epsilon.md); above: "none"."""
UNITS = {
    "sample": "one sample",
    "update": "one update",
    "client": "all updates of one client",
    "record": "one record",
}


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """ε (and δ) of one unit against one adversary.

    ``epsilon`` is what is proven, inf when nothing is; ``nominal`` what was asked for, or None.
    ``is_exact`` tells whether some pair of inputs really attains ε. ``composition`` has the single
    mechanisms behind a composed guarantee, so that composing further starts from them. ``covers``
    says what was composed, ``assumptions`` what has to hold; without privacy they say why there is
    none.

    >>> g = Guarantee(epsilon=4.0, nominal=4.0, is_exact=True)
    >>> g.for_update(7850).epsilon
    31400.0
    >>> print(g)
    Protects  one sample of 1 entry: ε = 4
    Against   the server, who knows payload, dither, scale and scheme
    >>> print(g.for_update(7850, delta=1e-5))
    Protects  one update: ε ≤ 30,650, δ ≤ 1e-05
    Against   the server, who knows payload, dither, scale and scheme
    Covers    7850 samples, by optimal composition of pure mechanisms (Kairouz, Oh, Viswanath 2015)
    """

    epsilon: float
    nominal: float | None = None
    delta: float = 0.0
    unit: str = "sample"
    adversary: str = "server"
    is_exact: bool = False
    sample_size: int = 1
    covers: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    composition: Composition | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("epsilon", "nominal"):
            if getattr(self, name) is not None or name == "epsilon":
                check_number(name, getattr(self, name))
        if self.delta != 1.0:  # which says nothing, and is what many (ε, δ) add up to
            check_delta(self.delta)
        if self.unit not in UNITS:
            raise ValueError(f"unit must be one of {', '.join(UNITS)}, got {self.unit!r}")
        if self.adversary not in ADVERSARIES:
            known = ", ".join(ADVERSARIES)
            raise ValueError(f"adversary must be one of {known}, got {self.adversary!r}")
        if check_count("sample_size", self.sample_size) < 1:
            raise ValueError(f"sample_size must be at least 1, got {self.sample_size!r}")

    # Composition

    @property
    def mechanisms(self) -> Composition:
        """The mechanisms of this guarantee: itself, unless it was composed."""
        if self.composition is not None:
            return self.composition
        return Composition.of(Mechanism(self.epsilon, self.delta))

    def for_update(self, dimension: int, delta: float = 0.0) -> Guarantee:
        """All ⌈d/L⌉ samples of one update.

        With ``delta=0`` ε (and δ) add up. A ``delta`` above 0 asks for the smallest ε a theorem
        gives at that δ; the guarantee names the theorem.
        """
        samples = self._samples(dimension)
        return self._compose(samples, "update", count_of(samples, "sample"), delta)

    def for_client(self, dimension: int, rounds: int, delta: float = 0.0) -> Guarantee:
        """All updates a client sends in ``rounds`` rounds; ``delta`` as in ``for_update``.

        >>> g = Guarantee(epsilon=0.01)
        >>> g.for_client(1000, 10).epsilon, round(g.for_client(1000, 10, delta=1e-5).epsilon, 2)
        (100.0, 4.38)
        """
        rounds = check_count("rounds", rounds)
        if self.unit == "update":
            return self._compose(rounds, "client", count_of(rounds, "round"), delta)
        if delta == 0.0:
            update = self.for_update(dimension)
            return update._compose(rounds, "client", count_of(rounds, "round"), delta)
        samples = self._samples(dimension)
        note = f"{count_of(samples, 'sample')} in each of {count_of(rounds, 'round')}"
        return self._compose(samples * rounds, "client", note, delta)

    def _samples(self, dimension: int) -> int:
        if self.unit != "sample":
            raise ValueError(f"composing starts from one sample, this is of one {self.unit}")
        return -(-check_count("dimension", dimension) // self.sample_size)

    def _compose(self, times: int, unit: str, note: str, delta: float) -> Guarantee:
        check_delta(delta)
        mechanisms = self.mechanisms.times(times)
        common = replace(
            self,
            epsilon=_scale(self.epsilon, times),
            nominal=None if self.nominal is None else _scale(self.nominal, times),
            delta=min(1.0, self.delta * times),
            unit=unit,
            # an assumption (such as a known norm) may keep samples from being worst together
            is_exact=self.is_exact and (times <= 1 or (self.delta == 0.0 and not self.assumptions)),
            covers=(*self.covers, note),
            composition=mechanisms,
        )
        if delta == 0.0:
            return common
        epsilon, theorem = mechanisms.epsilon_at(delta)
        return replace(
            common,
            epsilon=epsilon,
            nominal=None,  # the sum of those asked for is no such ε
            delta=delta if mechanisms.basic() != (epsilon, 0.0) else 0.0,
            is_exact=False,
            covers=(*self.covers, f"{note}, by {theorem}"),
        )

    def __str__(self) -> str:
        whom = UNITS[self.unit]
        if self.unit == "sample":
            whom += f" of {self.sample_size} entr{'y' if self.sample_size == 1 else 'ies'}"
        is_private = not (math.isinf(self.epsilon) or self.delta >= 1.0)
        if is_private:
            sign = "=" if self.is_exact else "≤"
            delta = f", δ {sign} {digits_up(self.delta, 3)}" if self.delta else ""
            whom += f": ε {sign} {digits_up(self.epsilon)}{delta}"
        else:
            whom = f"nothing: no privacy for {whom}"
        if self.nominal is not None and not math.isclose(self.nominal, self.epsilon, rel_tol=1e-6):
            whom += f" (asked for: ε = {self.nominal:.4g})"
        parts = {
            "Protects": (whom,),
            "Against": (ADVERSARIES[self.adversary],),
            "Covers": self.covers,
            "Holds if" if is_private else "Because": self.assumptions,
        }
        return "\n".join(
            f"{'' if number else label:<8}  {text}"
            for label, texts in parts.items()
            for number, text in enumerate(texts)
        )


def strength_of(epsilon: float) -> str:
    """The word of ``STRENGTHS`` for an ε of a person.

    >>> [strength_of(epsilon) for epsilon in (0.5, 4.0, 31400.0)]
    ['strong', 'moderate', 'none']
    """
    return next((word for most, word in STRENGTHS.items() if epsilon <= most * (1 + 1e-9)), "none")


def count_of(number: int, noun: str) -> str:
    """The number and its noun, in the plural unless it is 1.

    >>> count_of(1, "round"), count_of(20, "round")
    ('1 round', '20 rounds')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def digits_up(value: float, digits: int = 4) -> str:
    """Round up to this many significant digits (but for rounding errors of 10⁻⁹).

    >>> digits_up(10.1234), digits_up(31400.0), digits_up(30648.2), digits_up(1e-5, 3)
    ('10.13', '31,400', '30,650', '1e-05')
    """
    up = Context(prec=digits, rounding=ROUND_CEILING)
    rounded = float(up.create_decimal_from_float(value * (1 - 1e-9)))
    if not 1e3 <= rounded < 1e12:
        return f"{rounded:.{digits}g}"
    places = max(0, digits - len(str(int(rounded))))
    whole, _, rest = f"{rounded:,.{places}f}".partition(".")
    return f"{whole}.{rest}".rstrip("0").rstrip(".") if rest else whole


def places_up(value: float, places: int = 2) -> str:
    """Round up to this many decimals (but for rounding errors of 10⁻⁹).

    >>> places_up(8.0421), places_up(4.0 + 1e-15), places_up(31400.2, 0)
    ('8.05', '4.00', '31,401')
    """
    up = Decimal(value * (1 - 1e-9)).quantize(Decimal(1).scaleb(-places), ROUND_CEILING)
    return f"{up:,}"


def _scale(value: float, factor: float) -> float:
    """The product, where nothing repeated no times is 0 even of inf."""
    return value * factor if factor else 0.0
