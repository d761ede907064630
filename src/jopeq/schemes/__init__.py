"""The base of every scheme: ``Scheme``, its engine, opened payloads, states and their mean.

A scheme of one's own is a ``Scheme`` with a ``Codec`` (docs/build-on-it.md). Imports ``privacy``,
``kernels``, ``wire`` and below. The families are in ``entries``.
"""

from jopeq.schemes.base import Scheme
from jopeq.schemes.codec import Codec, Counts, Letters, Opened
from jopeq.wire.coders import Packing, WordCoder

__all__ = ["Codec", "Counts", "Letters", "Opened", "Packing", "Scheme", "WordCoder"]
