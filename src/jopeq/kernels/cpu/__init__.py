# mypy: implicit-reexport
# ruff: noqa: F401
"""CPU kernels: loops that Numba compiles when this package is imported."""

from jopeq.kernels.cpu.codec import add_bodies, decode_body, encode_body
from jopeq.kernels.cpu.codewords import add_codewords, codeword_scores, rotate_rows, unrotate_row
from jopeq.kernels.cpu.measure import chunk_sums
from jopeq.kernels.cpu.rotation import rotate, unrotate
from jopeq.kernels.cpu.share import draw_share
from jopeq.kernels.cpu.totals import add_clipped, add_products
