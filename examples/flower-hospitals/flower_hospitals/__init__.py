"""Patients' privacy on Flower: ten hospitals ask about their patients, then train together."""
