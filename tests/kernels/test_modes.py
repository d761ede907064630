"""auto, on and off: who decides, when kernels pay; work goes on without Numba."""

import os
import subprocess
import sys

import numpy as np
import pytest

import jopeq
from jopeq import kernels

LOADING, COMPILING = kernels._WORTH_LOADING, kernels._WORTH_COMPILING


class Situation:
    is_compiled = is_available = True
    loads = 0

    def load(self):
        self.loads += 1
        self.is_loaded = True

    is_loaded = property(
        lambda self: kernels.are_loaded(),
        lambda self, is_loaded: setattr(kernels, "_is_loaded", is_loaded),
    )


def used(entries):
    """Whether kernels code so many entries."""
    kernels.note(entries)
    return kernels.are_loaded()


@pytest.fixture
def situation(monkeypatch):
    """Whether kernels are compiled, importable, loaded; and how often they were loaded."""
    made = Situation()
    monkeypatch.delenv("JOPEQ_KERNELS")
    start = {"_mode": None, "_announced": 0, "_seen": 0, "_is_loaded": False, "load": made.load}
    for name, value in start.items():
        monkeypatch.setattr(kernels, name, value)
    monkeypatch.setattr(kernels, "is_compiled", lambda: made.is_compiled)
    monkeypatch.setattr(kernels, "_is_available", lambda: made.is_available)
    return made


def test_off_and_on_decide_whatever_the_size(situation):
    situation.is_loaded = True
    kernels.use("off")
    assert not used(1 << 40)
    assert not kernels.are_loaded()
    situation.is_loaded = situation.is_compiled = False
    kernels.use("on")
    assert used(1)
    assert situation.loads == 1
    assert kernels.are_loaded()


def test_auto_waits_until_the_work_pays_for_loading(situation):
    assert not used(10)
    assert not used(LOADING - 11)
    assert not kernels.are_loaded()
    assert used(1)
    assert situation.loads == 1
    assert kernels.are_loaded()
    assert used(1)  # once loaded, for small updates too


def test_auto_compiles_only_for_much_announced_work_and_before_it(situation, caplog):
    situation.is_compiled = False
    assert not used(COMPILING)  # whoever announced nothing does not wait for a compiler
    assert "run `jopeq doctor --warmup` once" in caplog.text
    kernels.prepare(COMPILING - 1)
    assert situation.loads == 0
    assert "compiling kernels" not in caplog.text
    kernels.prepare(1)
    assert situation.loads == 1
    assert "compiling kernels, once for this machine" in caplog.text


def test_auto_does_without_numba_and_looks_for_it_only_when_it_pays(situation, monkeypatch):
    situation.is_available = False
    kernels.prepare(COMPILING)
    assert not used(COMPILING)
    assert situation.loads == 0
    monkeypatch.setattr(kernels, "_announced", 0)
    monkeypatch.setattr(kernels, "_seen", 0)
    monkeypatch.setattr(kernels, "_is_available", lambda: pytest.fail("imported"))
    assert not used(LOADING - 1)
    situation.is_compiled = False
    assert not used(LOADING)


def test_the_environment_chooses_unless_the_program_does(situation, monkeypatch):
    monkeypatch.setenv("JOPEQ_KERNELS", "on")
    assert used(1)
    kernels.use("off")
    assert not used(1)
    monkeypatch.setenv("JOPEQ_KERNELS", "off")
    kernels.use("on")
    assert used(1)
    kernels.use(None)
    assert not used(1)


@pytest.mark.parametrize("wrong", ["", "ON", "yes", 1])
def test_wrong_modes_are_refused_and_change_nothing(situation, monkeypatch, wrong):
    kernels.use("on")
    with pytest.raises(ValueError, match="mode"):
        kernels.use(wrong)
    assert used(1)
    kernels.use(None)
    monkeypatch.setenv("JOPEQ_KERNELS", str(wrong))
    with pytest.raises(ValueError, match="JOPEQ_KERNELS"):
        used(1)


@pytest.mark.parametrize("name", ["encode_body", "decode_body", "chunk_sums"])
def test_encode_and_decode_do_as_chosen(name, on, monkeypatch):
    def fail(*_):
        raise KeyError(name)

    def code():
        scheme = jopeq.scheme("sdq", rate=2.0)
        return scheme.decode(scheme.encode({"a": np.ones(2)}), like={"a": np.ones(2)})

    with on():
        code()
        monkeypatch.setattr(f"jopeq.kernels.cpu.{name}", fail)
        with pytest.raises(KeyError, match=name):
            code()
        kernels.use("off")
        code()


# Without Numba


def run(code, *, kernels, check=True, **environment):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "JOPEQ_KERNELS": kernels, **environment},
        capture_output=True,
        text=True,
        check=check,
    )


NO_NUMBA = "import sys; sys.modules['numba'] = None\n"
MUCH = """
import jopeq, numpy as np
from jopeq import kernels
from jopeq.kernels import cache
cache.mark_compiled()
kernels.prepare(1 << 40)
scheme = jopeq.scheme("jopeq", epsilon=4.0, rate=1.0)
print(scheme.decode(scheme.encode(np.ones(5))).shape, kernels.are_loaded())
"""


@pytest.mark.parametrize("mode", ["auto", "off", "on"])
def test_numba_is_missing(mode, tmp_path):
    done = run(NO_NUMBA + MUCH, kernels=mode, NUMBA_CACHE_DIR=str(tmp_path), check=False)
    if mode == "on":
        last = done.stderr.strip().splitlines()[-1]
        assert last.startswith("ImportError: compiled kernels need Numba")
        assert "pip install 'jopeq[fast]'" in last
    else:
        assert done.stdout.split("\n")[0] == "(5,) False"
