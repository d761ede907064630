"""GPU kernels in Triton; where Triton is missing, updates are coded on the host."""
