"""What the paper's theorems say, as functions: error laws, noise shares, bounds.

    total_error        Theorem III.2: the law of noise plus dither on Z, against Laplace
    total_error_plane  Theorem III.1: the same on A2, against the multivariate t
    noise_share        Theorem III.3: which part of the variance is left for the noise
    aggregation        Theorem III.4: the error of the averaged model
    convergence        Theorem III.5: F(w_t) − F* of local SGD

docs/theory.md compares each with what is measured; ``jopeq reproduce theory`` makes that page.
"""
