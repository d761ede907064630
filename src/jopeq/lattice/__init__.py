"""Geometry: lattices with exact nearest points, codebooks of lattice points.

Imports ``random`` only.
"""

from jopeq.lattice.lattices import Lattice

__all__ = ["Lattice"]
