"""Private sums: shares of noise that only a secure sum opens, their plans and the proof's figures.

Imports ``schemes`` and below. The protocol that adds the shares up is in ``jopeq.circle``.
"""
