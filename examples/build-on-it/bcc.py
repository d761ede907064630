"""The body-centred cubic lattice: the best quantizer in three dimensions."""

import jopeq
from jopeq.lattice import Lattice

BCC = jopeq.register(  # columns are basis vectors
    Lattice(generator=((-1, 1, 1), (1, -1, 1), (1, 1, -1))), "bcc"
)


def row(epsilon, rate):
    """A row of Table I: the paper's scheme on this lattice."""
    return jopeq.JoPEQ(epsilon=epsilon, rate=rate, lattice="bcc")
