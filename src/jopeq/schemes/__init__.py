"""What every scheme shares: encode, decode, guarantee; opened payloads, states and their mean.

Imports ``privacy``, ``kernels``, ``wire`` and below. The families are in ``entries`` and
``sphere``; ``jopeq.registry`` knows all of them by name.
"""
