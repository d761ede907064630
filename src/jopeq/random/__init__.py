"""Randomness: ChaCha20 streams, samplers, portable arithmetic, exact rationals.

The lowest room: it imports nothing of jopeq but ``errors``.
"""
