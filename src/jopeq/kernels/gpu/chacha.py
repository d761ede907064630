"""ChaCha20 in plain torch, for the few blocks that are read outside a kernel."""

from __future__ import annotations

import torch

_SIGMA = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
_QUARTERS = (
    *((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)),
    *((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)),
)


def key_words(key: list[int], blocks: torch.Tensor, lane: int) -> torch.Tensor:
    """The sixteen words (signed) of these ChaCha20 blocks, in rows."""
    counter = blocks.to(torch.int32)  # keeps the low 32 bits
    constants = [*_SIGMA, *key]
    initial = [torch.full_like(counter, word) for word in constants]
    initial += [counter, *(torch.full_like(counter, word) for word in (0, 0, lane))]
    state = list(initial)
    for _ in range(10):
        for a, b, c, d in _QUARTERS:
            quarter = ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7))
            for target, source, mixed, bits in quarter:
                state[target] = state[target] + state[source]
                turned = state[mixed] ^ state[target]
                low = (turned >> (32 - bits)) & ((1 << bits) - 1)
                state[mixed] = (turned << bits) | low
    return torch.stack([x + y for x, y in zip(state, initial, strict=True)], dim=1)
