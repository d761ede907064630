"""Whether an error says that memory ran out: PyTorch has no single type for it."""

from __future__ import annotations


def is_of_memory(error: BaseException) -> bool:
    """
    >>> is_of_memory(MemoryError()), is_of_memory(RuntimeError("mat1 and mat2 do not fit"))
    (True, False)
    """
    if isinstance(error, MemoryError):
        return True
    said = str(error).lower()
    words = ("allocate memory", "not enough memory", "out of memory", "tried to allocate")
    return isinstance(error, RuntimeError) and any(some in said for some in words)
