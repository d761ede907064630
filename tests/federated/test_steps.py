"""A step of all clients at once: in place, or by a compiler that may be missing."""

import warnings

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("mode", ["off", "on"])
def test_parameters_that_are_not_used_stay(mode, samples, monkeypatch, build, trainer_of, train):
    monkeypatch.setattr(torch, "compile", lambda step, **options: step)
    model = build("unused")
    trainer = trainer_of(model, samples, compile=mode)
    assert trainer.kind == "vmap"
    updates, _ = train(trainer, model)
    assert not updates[:, -6:].any()
    assert updates[:, :-6].any()


@pytest.mark.parametrize("name", ["mlp", "cnn", "residual"])
def test_the_step_that_is_compiled_equals_the_eager_one(
    name, samples, monkeypatch, build, trainer_of, train
):
    monkeypatch.setattr(torch, "compile", lambda step, **options: step)
    model = build(name)
    eager, _ = train(trainer_of(model, samples), model)
    compiled, _ = train(trainer_of(model, samples, compile="on"), model)
    np.testing.assert_allclose(compiled, eager, rtol=1e-3, atol=2e-6)


def test_goes_on_without_a_compiler(samples, monkeypatch, build, trainer_of, train):
    def failing(*arguments):
        raise RuntimeError("no C++ compiler found\nand much more")

    monkeypatch.setattr(torch, "compile", lambda step, **options: failing)
    model = build("mlp")
    trainer = trainer_of(model, samples, compile="on")
    with pytest.warns(RuntimeWarning, match=r"torch.compile failed \(RuntimeError: no C\+\+"):
        updates, _ = train(trainer, model)
    assert not trainer.is_compiled
    assert np.array_equal(updates, train(trainer_of(model, samples), model)[0])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["mlp", "cnn"])  # in one process: other shapes stay static too
def test_really_compiled(name, samples, build, trainer_of, train):
    model = build(name)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="torch.compile failed")
        trainer = trainer_of(model, samples, compile="on")
        compiled, _ = train(trainer, model)
    assert trainer.is_compiled
    np.testing.assert_allclose(
        compiled, train(trainer_of(model, samples), model)[0], rtol=1e-3, atol=2e-6
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.filterwarnings("ignore")  # the compiler warns of itself
@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_compiled_on_a_gpu(name, samples, build, trainer_of, train):
    model = build(name)
    compiled = trainer_of(model, samples, total_steps=10**6, device="cuda")
    updates, _ = train(compiled, model)
    assert compiled.is_compiled
    np.testing.assert_allclose(updates, train(trainer_of(model, samples), model)[0], atol=5e-6)
