"""Colours, frames and axes that all pictures share, and the picture of ``jopeq plan``."""
