"""The payload: entries of an update, scaling, samples, packing, entropy coding, header and checks.

Imports ``random`` only. docs/wire-format.md describes the bytes.
"""
