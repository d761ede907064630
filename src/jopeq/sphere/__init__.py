"""``Sphere``: one report for a whole update, with an ε for a person who trusts nobody.

Imports ``schemes`` and below.
"""
