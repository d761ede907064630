"""Per-entry schemes: the paper's, ``Response`` and the baselines. One file a family.

Imports ``schemes`` and below. Their ε protects single entries of an update, not people.
"""

from jopeq.entries.additive import LaplaceNoise, StudentNoise, Uncompressed
from jopeq.entries.channelled import MinimumVarianceUnbiased, Response
from jopeq.entries.layer_clips import LayerClips
from jopeq.entries.quantized import (
    JoPEQ,
    LaplaceThenDither,
    NonSubtractiveDither,
    StudentThenDither,
    SubtractiveDither,
)

__all__ = [
    "JoPEQ",
    "LaplaceNoise",
    "LaplaceThenDither",
    "LayerClips",
    "MinimumVarianceUnbiased",
    "NonSubtractiveDither",
    "Response",
    "StudentNoise",
    "StudentThenDither",
    "SubtractiveDither",
    "Uncompressed",
]
