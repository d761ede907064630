"""``sphere``: ε for a whole update, against the server, in about ten bits per client.

    report  clip to ‖h‖ ≤ C; rotate; score every vector of the client's codebook against its block;
            draw a codeword: members by the counts of ``weights``, all others equally likely
    sum     put the codewords' draws on their blocks; rotate back; multiply by the plan's scale

Rotation and codebook come from the round's public seed (``jopeq.sphere.round``); the server knows
both.

**Privacy** rests only on ``SpherePlan.allow`` and one private word. Clip, rotation, floating-point
arithmetic, NaN and seed cannot break it (docs/guarantees.md).

**Unbiased.** Given the blocks, the scores t_i = ⟨u_i, x_b⟩/‖x_b‖ are independent and normal,
whatever the update is. E[u_i | t] = t_i·x_b/‖x_b‖, and the weight g_i of a member has the mean
√(n/k)·‖x_b‖ given its own block b. The uniform part cancels: codewords come with both signs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from jopeq.checks import check_count
from jopeq.errors import UpdateError
from jopeq.privacy.guarantee import Guarantee
from jopeq.random.streams import openssl
from jopeq.schemes.parameters import spec_of, take_annotated
from jopeq.sphere.round import MOST_PEOPLE, Round
from jopeq.sphere.sphere_plan import MOST_BITS, SpherePlan, plan_for
from jopeq.wire.scaling import Scaling

LEAST_EPSILON, MOST_EPSILON = 1.0 / 64.0, 24.0


@dataclass(frozen=True, kw_only=True)
class Sphere:
    """ε-LDP for the update as a whole, against the server, in at most 22 bits; unbiased.

    The error is within 7% of the best mechanism known (PrivUnitG) up to ε = 8, and within 17% at
    ε = 16. Divide ``expected_error`` by the number of clients to get the error of the mean. A
    report alone decodes to nothing: ``round`` makes the terms of a round, whose sum has the mean.
    It is unbiased if no update is longer than ``clip``.

    >>> scheme = Sphere(epsilon=8.0, clip=1.0)
    >>> scheme.bits_for(7850), round(scheme.expected_error(7850) / 10_000, 3)
    (11, 0.111)
    >>> print(scheme.guarantee)
    Protects  one update: ε ≤ 8
    Against   the server, who knows payload, dither, scale and scheme

    Parameters
    ----------
    epsilon : float
        Privacy asked for, of the whole update: from 1/64 to 24.
    clip : float
        Public bound on the update's Euclidean norm. Longer updates are scaled down.
    bits : int, optional
        Most bits per client, up to 24: by default 11, or 22 above ε = 10. The plan may take fewer
        (``bits_for``).
    draws : int, optional
        Normal draws for a client's codebook: more draws, less error. By default 2¹⁹, or 2²⁰ above
        ε = 10. Must be equal on both ends.
    max_entries : int, default 2²²
        Largest update: a client codes no more, whatever the terms of a round say.
    """

    name: ClassVar[str] = "sphere"
    is_private: ClassVar[bool] = True

    epsilon: float
    clip: float
    bits: int | None = None
    draws: int | None = None
    max_entries: int = 1 << 22

    def __post_init__(self) -> None:
        take_annotated(self)
        self.scaling  # noqa: B018 (validates the clip)
        if not LEAST_EPSILON <= self.epsilon <= MOST_EPSILON:
            raise ValueError(
                f"epsilon must be from 1/64 to {MOST_EPSILON:g} for scheme 'sphere', got "
                f"{self.epsilon}: 1 is strong and 8 is weak; for more, send several reports"
            )
        limits = {"bits": MOST_BITS, "draws": 1 << 26, "max_entries": 1 << 28}
        for name, most in limits.items():
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), 1, most)
        self.plan_for(1)  # refuses draws that are too few
        openssl()  # loaded here, so that the first report does not wait for it

    @cached_property
    def scaling(self) -> Scaling:
        """The scale to vectors of length 1 at most."""
        return Scaling(self.clip)

    @cached_property
    def spec(self) -> str:
        """Name and non-default parameters as JSON, as terms name the scheme."""
        return spec_of(self)

    # Figures

    def plan_for(self, dimension: int) -> SpherePlan:
        """Codebook and integers for updates of this dimension."""
        dimension = check_count("dimension", dimension, 1)
        if dimension > self.max_entries:
            raise UpdateError(
                f"the update has {dimension} entries, more than max_entries={self.max_entries}: "
                "raise max_entries on both ends"
            )
        is_large = self.epsilon > 10.0
        bits = self.bits or (22 if is_large else 11)
        draws = self.draws or (1 << 20 if is_large else 1 << 19)
        return plan_for(self.epsilon, dimension, bits, draws)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee for any dimension; ``guarantee_for`` has the exact ratio."""
        return Guarantee(epsilon=self.epsilon, nominal=self.epsilon, unit="update")

    def guarantee_for(self, dimension: int) -> Guarantee:
        """The exact ε of updates of this dimension."""
        return replace(self.guarantee, epsilon=self.plan_for(dimension).epsilon)

    def cost(self, sizes: Mapping[str, int]) -> Guarantee:
        """The cost of one report: ε covers the whole update."""
        return self.guarantee

    def expected_error(self, dimension: int, norm: float = 1.0) -> float:
        """E‖h̃ − h‖²/C² for an update of this dimension and of length ``norm``·C.

        The mean over K clients has 1/K of it.

        >>> round(Sphere(epsilon=4.0, clip=1.0).expected_error(1000), 1)
        436.8
        """
        if not (math.isfinite(norm) and 0.0 <= norm <= 1.0):
            raise ValueError(f"norm is in units of clip, from 0 to 1, got {norm!r}")
        return self.plan_for(dimension).error(norm)

    def bits_for(self, dimension: int) -> int:
        """Bits per client and round."""
        return self.plan_for(dimension).bits

    def round(self, *, dimension: int, seed: bytes, people: int = MOST_PEOPLE) -> Round:
        """Make the terms of a round for updates of this dimension.

        The seed is public: take fresh random bytes for every round, ``os.urandom(32)``. ``people``
        bounds the clients' numbers, and so the server's memory: one bit each.
        """
        return Round(self, dimension, seed, people)
