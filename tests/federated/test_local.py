"""All clients at once give what a loop over them gives."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from jopeq.federated import local, models
from jopeq.federated.local import batches

pytestmark = pytest.mark.usefixtures("one_thread")

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


@pytest.mark.parametrize("name", ["mlp", "cnn", "residual", "batch norm"])
def test_chunks_change_nothing(name, samples, build, trainer_of, train):
    model = build(name)
    whole, _ = train(trainer_of(model, samples), model)
    pieces, _ = train(trainer_of(model, samples, client_chunk=2), model)
    np.testing.assert_allclose(pieces, whole, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["cnn", "residual"])
def test_repeats_by_seed_and_round(name, samples, build, trainer_of, train):
    model = build(name)
    trainer = trainer_of(model, samples)
    first, _ = train(trainer, model)
    assert np.array_equal(train(trainer, model)[0], first)
    assert np.array_equal(train(trainer_of(model, samples), model)[0], first)
    assert not np.array_equal(train(trainer, model, seed=1)[0], first)
    assert not np.array_equal(train(trainer, model, round_number=1)[0], first)


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


def test_batch_norm_sends_its_statistics_but_no_integers(samples, build, trainer_of):
    model = build("batch norm")
    trainer = trainer_of(model, samples)
    assert {"1.running_mean", "1.running_var"} <= set(trainer.layout.names)
    assert "1.num_batches_tracked" not in trainer.layout.names
    assert trainer.layout.size == models.count_parameters(model) + 6


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


def test_memory_is_that_of_a_chunk(samples, parts, build, trainer_of):
    model = build("cnn")
    trainer = trainer_of(model, samples, client_chunk=2)
    start = trainer.layout.read(model)
    rates = [0.1] * trainer.steps
    chunks = trainer.train(start, parts, [0, 1, 2], learning_rates=rates, seed=0, round_number=0)
    assert [chunk.clients for chunk in chunks] == [(0, 1), (2,)]
    with pytest.raises(ValueError, match="client_chunk must be at least 1"):
        trainer_of(model, samples, client_chunk=0)


def test_learning_rates_are_those_of_each_step(samples, parts, build, trainer_of):
    model = build("linear")
    trainer = trainer_of(model, samples, steps=2, momentum=0.0)
    start = trainer.layout.read(model)
    common = {"seed": 0, "round_number": 0}
    (both,) = trainer.train(start, parts, [0], learning_rates=[0.1, 0.0], **common)
    single = trainer_of(model, samples, steps=1, momentum=0.0)
    order = batches(parts, [0], steps=2, batch_size=trainer.batch_size, seed=0, round_number=0)
    expected, _ = plain_loop(model, single.layout, samples, order[:1], 0.1, 0.0)
    np.testing.assert_allclose(both.updates, expected, atol=1e-6)
    with pytest.raises(ValueError, match="one entry for each of 2 steps"):
        list(trainer.train(start, parts, [0], learning_rates=[0.1], **common))


def test_a_model_without_parameters_is_refused(samples, trainer_of):
    with pytest.raises(ValueError, match="nothing to train"):
        trainer_of(nn.Flatten(), samples)


def test_tied_layers(samples, order, build, trainer_of, train):
    shared = build(lambda: nn.Linear(256, 256))
    model = nn.Sequential(nn.Flatten(), shared, nn.Tanh(), shared, build(lambda: nn.Linear(256, 4)))
    trainer = trainer_of(model, samples)
    expected, _ = plain_loop(model, trainer.layout, samples, order, 0.1, 0.5)
    np.testing.assert_allclose(train(trainer, model)[0], expected, atol=5e-6)


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


def test_thresholds_are_known_for_every_way_that_compiles():
    assert set(local._WORTH_COMPILING["cpu"]) == {"stacked", "vmap"}
