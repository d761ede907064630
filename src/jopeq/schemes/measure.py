"""Figures of a quantized scheme that have no closed form, computed once per scheme."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from jopeq import samplers
from jopeq.codebook import ScalarCodebook
from jopeq.randomness import PrivateStream, SharedStream

if TYPE_CHECKING:
    from jopeq.schemes.base import Scheme
    from jopeq.schemes.quantized import QuantizedScheme

Array = NDArray[np.float64]

_DITHERS = 256
_SAMPLES = 1 << 17
_MAX_LETTERS = 1 << 12  # above, overload is too rare to matter on Z
_TEST_KEY = b"jopeq: a reproducible test stream"[:32]


def codebook_distortion(scheme: QuantizedScheme) -> float:
    """E‖decoded − 0‖²/L at x = 0, overload included.

    On Z exact in the noise and by the midpoint rule in the dither; on other lattices the mean over
    131,072 fixed draws (standard error about half a percent).
    """
    codes = scheme._codebook
    if isinstance(codes, ScalarCodebook):
        if codes.letters > _MAX_LETTERS:
            variance = 0.0 if scheme.noise is None else scheme.noise.variance
            factor = 1.0 if scheme.is_subtractive else 2.0
            return variance + factor * codes.lattice.second_moment
        return _scalar_distortion(scheme, codes)
    zeros = np.zeros((_SAMPLES, scheme.dimension))
    shared = SharedStream(_TEST_KEY)
    private = PrivateStream.reproducible(_TEST_KEY)
    symbols = scheme._to_symbols(zeros, 0, shared, private)
    if scheme.noise is None and scheme.is_subtractive and not symbols.overloaded:
        return codes.lattice.second_moment  # the error is uniform on the cell
    return float(np.square(scheme._to_samples(symbols.values, 0, shared)).mean())


def _scalar_distortion(scheme: QuantizedScheme, codes: ScalarCodebook) -> float:
    step = codes.lattice.step
    points = codes.points(np.arange(codes.letters))[:, 0]
    edges = points[:-1] + 0.5 * step
    total = 0.0
    for dither in ((np.arange(_DITHERS) + 0.5) / _DITHERS - 0.5) * step:
        below = edges - dither
        if scheme.noise is None:
            distribution = (below > 0.0).astype(np.float64)
        else:
            distribution = scheme.noise.distribution(below)
        chances = np.diff(distribution, prepend=0.0, append=1.0)
        decoded = points - dither if scheme.is_subtractive else points
        total += float(chances @ (decoded * decoded))
    return total / _DITHERS


def measured_bits(scheme: Scheme) -> float:
    """Bits per entry of the entropy-coded body of a Gaussian update of 131,072 entries."""
    update = samplers.normal(PrivateStream.reproducible(_TEST_KEY), 0, _SAMPLES)
    if scheme.clip is not None:
        update *= scheme.clip / scheme.spread
    _, counted = scheme.encode(
        update,
        seed=_TEST_KEY,
        noise=PrivateStream.reproducible(_TEST_KEY[::-1]),
        statistics=True,
    )
    return counted.bits_per_entry
