"""Payloads: entries of an update, scaling, packing, header and checks.

Imports ``random`` only. docs/wire-format.md describes the bytes.
"""
