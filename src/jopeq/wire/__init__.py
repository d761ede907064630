"""The payload: entries of an update, scaling, samples, packing, header and checks.

Imports ``random`` only. docs/wire-format.md describes the bytes.
"""
