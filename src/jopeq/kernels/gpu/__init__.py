"""GPU kernels (Triton), with PyTorch in their place where Triton is missing."""
