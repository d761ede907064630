"""All clients at once give what a loop over them gives."""

import copy
import os
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from jopeq.federated import local
from jopeq.federated.local import batch_order, batches, participants
from jopeq.federated.models import ModelVector

KINDS = {
    "linear": "stacked",
    "mlp": "stacked",
    "cnn": "stacked",
    "lenet": "stacked",
    "odd layers": "stacked",
    "dense on images": "vmap",
    "residual": "vmap",
    "dilated": "vmap",
    "branching": "loop",
    "batch norm": "loop",
    "batch norm without statistics": "vmap",
}


def plain_loop(model, layout, samples, order, rate, momentum):
    """One client after another, the obvious way."""
    inputs, labels = samples
    updates, losses = [], []
    for client in range(order.shape[1]):
        mine = copy.deepcopy(model).train()
        optimizer = torch.optim.SGD(
            [p for p in mine.parameters() if p.requires_grad], lr=rate, momentum=momentum
        )
        seen = []
        for indices in order[:, client]:
            optimizer.zero_grad()
            loss = functional.cross_entropy(mine(inputs[indices]), labels[indices])
            loss.backward()
            optimizer.step()
            seen.append(loss.item())
        updates.append((layout.read(mine) - layout.read(model)).numpy())
        losses.append(np.mean(seen))
    return np.stack(updates), np.array(losses)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("name", KINDS)
def test_equals_a_loop_over_clients(name, momentum, samples, order, build, trainer_of, train):
    model = build(name)
    trainer = trainer_of(model, samples, momentum=momentum)
    assert trainer.kind == KINDS[name]
    expected, losses = plain_loop(model, trainer.layout, samples, order, 0.1, momentum)
    found, found_losses = train(trainer, model)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=2e-6)
    np.testing.assert_allclose(found_losses, losses, rtol=1e-5)
    assert np.abs(expected).max() > 1e-3


@pytest.mark.parametrize("mode", ["off", "on"])
@pytest.mark.parametrize("name", ["mlp", "residual", "batch norm"])  # stacked, vmap, loop
def test_kept_momentum_and_rates_of_clients(
    name, mode, samples, parts, build, trainer_of, monkeypatch
):
    """Two rounds from the same weights equal one optimizer a client that lives through both."""
    monkeypatch.setattr(torch, "compile", lambda step, **options: step)
    model, factors = build(name), [1.0, 0.1, 0.5]
    trainer = trainer_of(model, samples, momentum=0.5, client_chunk=2, compile=mode)
    momenta, start = trainer.zero_momenta(3), trainer.layout.read(model)
    (inputs, labels), options = samples, {"steps": trainer.steps, "batch_size": trainer.batch_size}
    models = [copy.deepcopy(model).train() for _ in factors]
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1, momentum=0.5) for one in models]
    for number in range(2):
        given = {"learning_rates": [0.1] * trainer.steps, "seed": 0, "round_number": number}
        chunks = trainer.train(
            start, parts, [0, 1, 2], **given, rate_factors=factors, momenta=momenta
        )
        found = np.concatenate([chunk.updates for chunk in chunks])
        order = batches(parts, [0, 1, 2], seed=0, round_number=number, **options)
        for client, (mine, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            trainer.layout.write(mine, start)
            optimizer.param_groups[0]["lr"] = 0.1 * factors[client]
            for indices in order[:, client]:
                optimizer.zero_grad()
                functional.cross_entropy(mine(inputs[indices]), labels[indices]).backward()
                optimizer.step()
            expected = (trainer.layout.read(mine) - start).numpy()
            np.testing.assert_allclose(found[client], expected, rtol=1e-3, atol=2e-6)


@pytest.mark.parametrize("name", ["mlp", "cnn", "residual", "batch norm"])
def test_chunks_change_nothing_and_seed_and_round_all(
    name, samples, parts, build, trainer_of, train
):
    model = build(name)
    trainer = trainer_of(model, samples)
    whole, _ = train(trainer, model)
    assert np.array_equal(train(trainer, model)[0], whole)
    assert not np.array_equal(train(trainer, model, seed=1)[0], whole)
    assert not np.array_equal(train(trainer, model, round_number=1)[0], whole)
    trainer = trainer_of(model, samples, client_chunk=2)
    np.testing.assert_allclose(train(trainer, model)[0], whole, rtol=1e-4, atol=1e-6)
    given = {"learning_rates": [0.1] * trainer.steps, "seed": 0, "round_number": 0}
    chunks = trainer.train(trainer.layout.read(model), parts, [0, 1, 2], **given)
    assert [chunk.clients for chunk in chunks] == [(0, 1), (2,)]


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(256, 4)),
        lambda: nn.Sequential(nn.Flatten(), nn.AlphaDropout(0.5), nn.Linear(256, 4)),
    ],
    ids=["stacked", "vmap"],
)
def test_dropout_differs_by_client_and_repeats_by_seed(make, samples, build, trainer_of, train):
    model = build(make)
    inputs, labels = samples
    same = torch.ones_like(inputs), torch.zeros_like(labels)
    trainer = trainer_of(model, same, steps=1, batch_size=4)
    state = torch.get_rng_state()
    updates, _ = train(trainer, model)
    assert torch.equal(torch.get_rng_state(), state)
    assert not np.array_equal(updates[0], updates[1])  # same samples, other masks
    assert np.array_equal(train(trainer, model)[0], updates)


def test_constant_buffers_and_frozen_parameters_stay_home(samples, order, build, trainer_of, train):
    model = build("residual")
    model.first.weight.requires_grad_(False)
    trainer = trainer_of(model, samples)
    assert trainer.layout.names == ("first.bias", "second.weight", "second.bias")
    frozen = build("mlp")
    frozen[1].weight.requires_grad_(False)
    trainer = trainer_of(frozen, samples)
    assert trainer.kind == "stacked"
    expected, _ = plain_loop(frozen, trainer.layout, samples, order, 0.1, 0.5)
    np.testing.assert_allclose(train(trainer, frozen)[0], expected, atol=2e-6)


# Compilation


def test_compile_is_chosen_by_the_length_of_the_run(samples, monkeypatch, build, trainer_of):
    monkeypatch.setattr(torch, "compile", lambda step, **options: step)
    linear, convolved, residual = (build(n) for n in ("linear", "cnn", "residual"))
    assert not trainer_of(linear, samples, total_steps=10_000).is_compiled
    assert trainer_of(linear, samples, total_steps=10**6).is_compiled
    assert not trainer_of(linear, samples, total_steps=10**6, compile="off").is_compiled
    assert trainer_of(linear, samples, compile="on").is_compiled
    assert not trainer_of(convolved, samples, total_steps=10**6).is_compiled
    assert trainer_of(residual, samples, total_steps=10**5).is_compiled
    assert not trainer_of(build("batch norm"), samples, compile="on").is_compiled
    with pytest.raises(ValueError, match="compile must be one of"):
        trainer_of(linear, samples, compile="maybe")


def test_order_sees_every_sample_before_any_again():
    order = batch_order(7, 20, torch.Generator().manual_seed(0))
    assert sorted(order[:7].tolist()) == sorted(order[7:14].tolist()) == list(range(7))
    assert len(set(order[14:].tolist())) == 6
    with pytest.raises(ValueError, match="at least one sample"):
        batch_order(0, 1, torch.Generator())


def test_batches_are_of_each_client_alone(parts):
    order = batches(parts, [0, 2], steps=4, batch_size=3, seed=0, round_number=2)
    assert order.shape == (4, 2, 3)
    assert set(order[:, 0].flatten().tolist()) <= set(parts[0].tolist())
    assert set(order[:, 1].flatten().tolist()) == set(parts[2].tolist())
    alone = batches(parts, [2], steps=4, batch_size=3, seed=0, round_number=2)
    assert torch.equal(alone[:, 0], order[:, 1])  # whoever else takes part


def test_participants():
    assert participants(10, 1.0, 0, 0) == list(range(10))
    assert len(participants(10, 0.01, 0, 0)) == 1
    rounds = [tuple(participants(10, 0.3, 0, number)) for number in range(200)]
    assert {len(set(chosen)) for chosen in rounds} == {3}
    counts = np.bincount(np.ravel(rounds), minlength=10)
    assert counts.min() > 30  # 60 expected, standard deviation 6.5


def choose(model, samples, changes_buffers=False):
    inputs, labels = (part[:4] for part in samples)
    return local.choose(model, ModelVector(model), inputs, labels, changes_buffers)


def test_a_stacked_form_that_computes_something_else_is_not_taken(build, samples, monkeypatch):
    right = local.stacked_forward

    def wrong(model):
        forward = right(model)
        shifted = lambda *arguments: forward(*arguments) + 0.01  # noqa: E731
        shifted.has_convolutions = False
        return shifted

    assert choose(build("mlp"), samples).kind == "stacked"
    monkeypatch.setattr(local, "stacked_forward", wrong)
    assert choose(build("mlp"), samples).kind == "vmap"


@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(256, 4)),
        lambda: nn.Sequential(nn.Flatten(), nn.AlphaDropout(0.5), nn.Linear(256, 4)),
        "branching",
    ],
    ids=["stacked", "vmap", "loop"],
)
def test_the_try_leaves_no_trace(make, is_training, build, samples):
    model = build(make).train(is_training)
    before = [value.clone() for value in model.state_dict().values()]
    state = torch.get_rng_state()
    choose(model, samples)
    assert model.training is is_training
    assert torch.equal(torch.get_rng_state(), state)
    after = model.state_dict().values()
    assert all(torch.equal(one, two) for one, two in zip(before, after, strict=True))
    assert all(value.grad is None for value in model.parameters())


def test_parameters_that_are_not_used_stay(samples, monkeypatch, build, trainer_of, train):
    monkeypatch.setattr(torch, "compile", lambda step, **options: step)
    model = build("unused")
    for mode in ("off", "on"):
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


def test_the_compiler_keeps_its_code_in_a_folder_of_the_users_own(tmp_path, monkeypatch):
    """PyTorch's own folder lies in /tmp under a name that others can take first."""
    monkeypatch.setattr(torch, "compile", lambda step, **_: step)  # which is slow, and warns
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    assert local.CompiledStep(None, 0.0, None).is_compiled
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path.resolve() / "jopeq" / "inductor")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    (tmp_path / "jopeq").chmod(0o777)
    with pytest.warns(RuntimeWarning, match=r"no torch\.compile: others can write"):
        assert not local.CompiledStep(None, 0.0, None).is_compiled
