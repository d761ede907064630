"""Compare with other libraries: speed, bits and error, at one size.

All are optional: what is not installed is named and left out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import jopeq
from codec import gaussian, relative_error, torch_seconds
from jopeq import kernels
from timing import best_seconds, cores

Way = tuple[Callable[[Any], Any], Callable[[Any], Any], Callable[[Any], int]]

_ZSTD_LEVEL = 3
_ENTRIES = 10**7


def _ours(**parameters: Any) -> Callable[[], Way]:
    def make() -> Way:
        scheme = jopeq.scheme(**parameters)
        return scheme.encode, scheme.decode, len

    return make


def _float16() -> Way:
    return (
        lambda update: update.astype(np.float16),
        lambda short: short.astype(np.float32),
        lambda short: short.nbytes,
    )


def _torch_float16() -> Way:
    import torch

    return (
        lambda update: torch.from_numpy(update).half(),
        lambda short: short.float().numpy(),
        lambda short: short.nbytes,
    )


def _torch_int8() -> Way:
    """Scale from the largest entry, which has to be found first."""
    import torch

    def encode(update: Any) -> Any:
        tensor = torch.from_numpy(update)
        scale = float(tensor.abs().max()) / 127
        return torch.quantize_per_tensor(tensor, scale, 0, torch.qint8)

    return encode, lambda q: q.dequantize().numpy(), lambda q: q.int_repr().nbytes


def _zstd() -> Way:
    import zstandard

    press = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, threads=cores())
    back = zstandard.ZstdDecompressor()
    return (
        lambda update: press.compress(update.data.cast("B")),
        lambda packed: np.frombuffer(back.decompress(packed), dtype=np.float32),
        len,
    )


def _eden() -> Way:
    """EDEN at 2 bits; its letters stay integers, so bits are counted, not packed."""
    import cmprs
    import torch

    coder = cmprs.eden(2)
    return (
        lambda update: coder.forward(torch.from_numpy(update)),
        lambda out: coder.backward(out.tx, out.tcontext).numpy(),
        lambda out: 2 * out.tx.numel() // 8,
    )


PEERS: dict[str, Callable[[], Way]] = {
    "jopeq: sdq, 2 bits": _ours(name="sdq", rate=2),
    "jopeq: sdq, 4 bits": _ours(name="sdq", rate=4),
    "jopeq: sdq, 8 bits": _ours(name="sdq", rate=8),
    "jopeq: response, ε = 4, 2 bits": _ours(name="response", epsilon=4, rate=2),
    "float16, NumPy": _float16,
    "float16, PyTorch": _torch_float16,
    "int8, torch.quantize_per_tensor": _torch_int8,
    f"zstd level {_ZSTD_LEVEL} of float32": _zstd,
    "EDEN, 2 bits (distributed-mean-estimation)": _eden,
}
_IN_TORCH = (_torch_float16, _torch_int8, _eden)


def measure_peers(most: float, say: Callable[[str], None]) -> dict[str, Any]:
    kernels.use("on")
    update = gaussian(int(min(most, _ENTRIES)))
    missing: dict[str, str] = {}
    with warnings.catch_warnings():  # PyTorch means to remove its quantized tensors
        warnings.filterwarnings("ignore", message="torch.quantize_per_tensor")
        rows = _measured(update, missing, say)
    return {"entries": len(update), "rows": rows, "missing": missing}


def _measured(update: Any, missing: dict[str, str], say: Callable[[str], None]) -> dict[str, Any]:
    rows = {}
    for name, make in PEERS.items():
        say(name)
        try:
            encode, decode, size = make()
        except ImportError as error:
            missing[name] = _reason(error)
            continue
        seconds = _torch_seconds if make in _IN_TORCH else best_seconds
        coded = encode(update)
        rows[name] = {
            "bits": 8 * size(coded) / len(update),
            "error": relative_error(update, decode(coded)),
            "encode": len(update) / seconds(lambda e=encode: e(update)),
            "decode": len(update) / seconds(lambda d=decode, c=coded: d(c)),
        }
    return rows


def _torch_seconds(work: Callable[[], object]) -> float:
    return torch_seconds(work, [cores(), 1])[0]


def _reason(error: ImportError) -> str:
    """Say if it is not installed, or installed and cannot be imported."""
    package, _, inner = (error.name or "").partition(".")
    if inner:
        return f"the release of {package} that is installed lacks its own module {error.name}"
    return str(error)
