"""Geometry: lattices with exact nearest points, codebooks of lattice points, moves between cells.

Imports ``random`` only.
"""

from jopeq.lattice.lattices import Lattice

__all__ = ["Lattice"]
