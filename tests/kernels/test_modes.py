"""auto, on and off: who decides, when kernels pay, and that they are really used."""

from __future__ import annotations

import numpy as np
import pytest

import jopeq
from jopeq import kernels

LOADING, COMPILING = kernels._WORTH_LOADING, kernels._WORTH_COMPILING


class Situation:
    """Whether kernels are compiled, importable, loaded; and how often they were loaded."""

    is_compiled = True
    is_available = True
    is_loaded = False
    loads = 0

    def load(self):
        self.loads += 1
        self.is_loaded = True
        return True


@pytest.fixture
def situation(monkeypatch):
    made = Situation()
    monkeypatch.delenv("JOPEQ_KERNELS")
    monkeypatch.setattr(kernels, "_mode", None)
    monkeypatch.setattr(kernels, "_expected", 0)
    monkeypatch.setattr(kernels, "_is_loaded", lambda: made.is_loaded)
    monkeypatch.setattr(kernels, "_is_available", lambda: made.is_available)
    monkeypatch.setattr(kernels, "is_compiled", lambda: made.is_compiled)
    monkeypatch.setattr(kernels, "load", made.load)
    return made


def test_off_uses_no_kernels_whatever_the_size(situation):
    kernels.use("off")
    situation.is_loaded = True
    assert not kernels.are_used(1 << 40)
    assert not kernels.are_loaded()


def test_on_uses_kernels_whatever_the_size(situation):
    kernels.use("on")
    situation.is_compiled = False
    assert kernels.are_used(1)
    assert situation.loads == 1
    assert kernels.are_loaded()


def test_auto_waits_until_the_work_pays_for_loading(situation):
    assert not kernels.are_used(10)
    assert not kernels.are_used(LOADING - 11)
    assert not kernels.are_loaded()
    assert kernels.are_used(1)
    assert situation.loads == 1


def test_once_loaded_kernels_code_small_updates_too(situation):
    assert kernels.are_used(LOADING)
    assert kernels.are_used(1)
    assert kernels.are_loaded()


def test_auto_believes_what_is_announced(situation):
    kernels.expect(LOADING)
    assert kernels.are_used(1)


def test_auto_compiles_only_for_much_work(situation):
    situation.is_compiled = False
    assert not kernels.are_used(COMPILING - 1)
    assert situation.loads == 0
    assert kernels.are_used(1)
    assert situation.loads == 1


def test_auto_does_without_numba(situation):
    situation.is_available = False
    assert not kernels.are_used(COMPILING)
    assert situation.loads == 0


def test_numba_is_not_imported_before_it_pays(situation, monkeypatch):
    monkeypatch.setattr(kernels, "_is_available", lambda: pytest.fail("imported"))
    assert not kernels.are_used(LOADING - 1)
    situation.is_compiled = False
    assert not kernels.are_used(LOADING)


def test_the_environment_chooses_unless_the_program_does(situation, monkeypatch):
    monkeypatch.setenv("JOPEQ_KERNELS", "on")
    assert kernels.are_used(1)
    kernels.use("off")
    assert not kernels.are_used(1)
    monkeypatch.setenv("JOPEQ_KERNELS", "off")
    kernels.use("on")
    assert kernels.are_used(1)
    kernels.use(None)
    assert not kernels.are_used(1)


@pytest.mark.parametrize("wrong", ["", "ON", "yes", 1])
def test_wrong_modes_are_refused_and_change_nothing(situation, monkeypatch, wrong):
    kernels.use("on")
    with pytest.raises(ValueError, match=r"mode must be one of auto, on, off, got"):
        kernels.use(wrong)
    assert kernels.are_used(1)
    kernels.use(None)
    monkeypatch.setenv("JOPEQ_KERNELS", str(wrong))
    with pytest.raises(ValueError, match=r"JOPEQ_KERNELS must be one of auto, on, off, got"):
        kernels.are_used(1)


@pytest.mark.parametrize("chosen", ["on", "off"])
def test_encode_and_decode_do_as_chosen(chosen, on, monkeypatch):
    with on():
        from jopeq.kernels.cpu import codec as cpu
        from jopeq.kernels.cpu import measure
    called = []
    for module, names in (
        (cpu, ("encode_body", "decode_body")),
        (measure, ("chunk_sums", "is_finite")),
    ):
        for name in names:
            function = getattr(module, name)
            spy = lambda *a, name=name, function=function: (called.append(name), function(*a))[1]  # noqa: E731
            monkeypatch.setattr(module, name, spy)
    kernels.use(chosen)
    try:
        kernels.are_used(1)
        scheme = jopeq.scheme("sdq", rate=2.0)
        scheme.decode(scheme.encode(np.ones(9)))
        jopeq.decode_state(scheme, jopeq.encode_state(scheme, {"a": np.ones(2)}), {"a": np.ones(2)})
    finally:
        kernels.use(None)
    expected = ["is_finite", "chunk_sums", "encode_body", "decode_body"] * 2
    assert called == (expected if chosen == "on" else [])


def test_tests_run_the_plain_path_unless_they_ask():
    import os

    assert os.environ["JOPEQ_KERNELS"] in ("off", "on")
    kernels.use(None)
    assert kernels.are_used(1 << 40) == (os.environ["JOPEQ_KERNELS"] == "on")
