"""Patients' privacy on Flower: a linear model of handwritten digits in ten hospitals."""
