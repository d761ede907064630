"""Finite channels: randomized response, and the minimum-variance unbiased mechanism.

Imports ``random`` only.
"""
