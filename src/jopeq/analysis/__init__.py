"""Promises and costs of a scheme, computed: audits, exact and empirical ε, plans, reports.

Imports ``schemes`` and below. No scheme imports it.
"""
