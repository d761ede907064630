"""Compiled CPU kernels (Numba). Importing a module compiles it: use ``jopeq.kernels``."""
