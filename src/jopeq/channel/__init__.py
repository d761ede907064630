"""Finite channels: randomized response, optimal design, the shipped tables of designed channels.

Imports ``random`` only.
"""
