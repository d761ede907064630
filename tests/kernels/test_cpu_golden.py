"""Compiled kernels write and read the golden payloads."""

from __future__ import annotations

import base64
import importlib.util
import json
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent.parent / "golden"
CASES = json.loads((GOLDEN / "payloads.json").read_text())


@pytest.fixture(scope="module")
def make():
    spec = importlib.util.spec_from_file_location("jopeq_golden_make", GOLDEN / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", CASES)
def test_golden_bytes(name, make, compiled):
    case, payload, decoded = (CASES[name][part] for part in ("case", "payload", "decoded"))
    encoded = make.encode(case)
    assert make.kept(encoded) == payload
    data = base64.b64decode(payload["base64"]) if "base64" in payload else encoded
    assert make.kept(make.decode(case, data).astype("<f4").tobytes()) == decoded


def test_most_cases_are_coded_by_kernels(make, compiled):
    import jopeq

    schemes = [jopeq.scheme(case[0], **case[1]) for case in make.CASES.values()]
    fused = {scheme.name for scheme in schemes if scheme.kernel_recipe(1) is not None}
    assert fused == {
        "sdq", "dq", "laplace", "t", "laplace+sdq", "t+sdq", "jopeq", "staircase", "response",
    }  # fmt: skip
