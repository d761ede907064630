# mypy: implicit-reexport
# ruff: noqa: F401
"""GPU kernels in Triton, and the host's part of them. Needs torch; runs only where Triton does."""

from jopeq.kernels.gpu.codec import add_body, decode_body, encode_body
from jopeq.kernels.gpu.entries import DeviceEntries
from jopeq.kernels.gpu.totals import add_clipped
