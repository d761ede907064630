import sys

import pytest

from jopeq.cli.attack import gradients_of

SHAPE = (1, 4, 4)
HEAD = """
import torch
from torch import nn
def dense():
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
class Raising(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.inner = kind, nn.Linear(16, 3)
    def forward(self, images):
        raise self.kind("what it said")
class Apart(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.inner, self.way = dense(), forward
    def forward(self, images):
        return self.way(images, self.inner)
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def built(code):
        (tmp_path / "own_code.py").write_text(HEAD + code)
        sys.modules.pop("own_code", None)
        return gradients_of("own_code:make", SHAPE, 3, seed=0, device="cpu")

    yield built
    sys.modules.pop("own_code", None)


def test_a_good_one_is_built(own):
    assert own("make = dense").classes == 3


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise RuntimeError('what it said')", "RuntimeError: what it said"),
        ("1 / 0", "ZeroDivisionError: division"),
        ("def make(:", "SyntaxError: "),
        ("make = unknown", "NameError: name 'unknown'"),
        ("raise SystemExit('what it said')", "SystemExit: what it said"),
        ("def make():\n    raise RuntimeError('what it\\n said')", "RuntimeError: what it said"),
        ("def make():\n    return {}['key']", "KeyError: 'key'"),
        ("def make():\n    raise ValueError('what it said')", "what it said"),
        (
            "def make():\n    dense().load_state_dict({})",
            "RuntimeError: Error(s) in loading state_dict",
        ),
        ("def make():\n    return Raising(TypeError)", "TypeError: what it said"),
        ("def make():\n    return Raising(AssertionError)", "AssertionError: what it said"),
        ("def make():\n    assert False", "(AssertionError)"),
        ("make = lambda: Apart(lambda x, inner: exec('assert False'))", "(AssertionError)"),
        ("def make():\n    return nn.LazyLinear(3)", "uninitialized parameter"),
        ("def make():\n    return nn.Linear(10**9, 10**9)", "does not fit into memory"),
        ("make = lambda: Apart(lambda x, inner: torch.ones(len(x), 3))", "no gradient"),
        ("make = lambda: Apart(lambda x, inner: inner(x).detach())", "no gradient"),
        ("def make():\n    return Apart(lambda x, inner: inner(x.detach()))", "on the image"),
    ],
)
def test_whatever_it_raises_is_one_line_that_names_it(own, code, said):
    with pytest.raises(ValueError, match="--model 'own_code:make'") as caught:
        own(code)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_that_are_unknown_are_told_once():
    with pytest.raises(ValueError, match=r"^--model must be one of .* got 'mine'$"):
        gradients_of("mine", SHAPE, 3, seed=0, device="cpu")
