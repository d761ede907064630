"""``Sphere``: one report for a whole update, with an ε for a person who trusts nobody.

Imports ``schemes`` and below.
"""

from jopeq.sphere.sphere import Aggregator, Round, Sphere

__all__ = ["Aggregator", "Round", "Sphere"]
