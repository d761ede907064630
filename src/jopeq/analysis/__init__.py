"""What a scheme promises and costs, computed: audit, exact and empirical ε, plans, the theorems.

Imports ``schemes`` and below. No scheme imports it.
"""
