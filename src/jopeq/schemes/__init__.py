"""What every scheme shares: ``Scheme``, its engine, opened payloads, states and their mean.

Imports ``privacy``, ``kernels``, ``wire`` and below. The families are in ``entries`` and
``sphere``; ``jopeq.registry`` knows all of them by name.
"""

from jopeq.schemes.base import Scheme
from jopeq.schemes.codec import Counts
from jopeq.schemes.opened import Opened

__all__ = ["Counts", "Opened", "Scheme"]
