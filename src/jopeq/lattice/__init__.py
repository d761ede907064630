"""Geometry: lattices with exact nearest points, codebooks of lattice points.

Imports ``random`` only.
"""
