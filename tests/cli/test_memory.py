import pytest
import torch

from jopeq.cli.output import is_of_memory


def test_what_pytorch_raises_when_memory_is_out_is_known():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60)
    assert is_of_memory(caught.value)
    assert is_of_memory(torch.OutOfMemoryError("CUDA out of memory."))
    assert is_of_memory(MemoryError())
    assert not is_of_memory(RuntimeError("shapes cannot be multiplied"))
    assert not is_of_memory(ValueError("out of memory"))
