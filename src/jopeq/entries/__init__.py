"""Per-entry schemes: the paper's, ``Response`` and the baselines. One file a family.

Imports ``schemes`` and below. Their ε protects single entries of an update, not people.
"""
