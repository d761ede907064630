import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from jopeq.federated import local, models
from jopeq.federated.batches import batches
from jopeq.federated.local import LocalTrainer

SHAPE, CLASSES, CLIENTS, STEPS, BATCH = (1, 16, 16), 4, 3, 6, 5


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def samples():
    source = torch.Generator().manual_seed(1)
    inputs = torch.randn(60, *SHAPE, generator=source)
    return inputs, torch.randint(0, CLASSES, (60,), generator=source)


PARTS = [np.arange(0, 31), np.arange(31, 53), np.arange(53, 60)]


def build(make, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return make()


class Residual(nn.Module):
    """No Sequential, so that vmap must do it."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(256, 16), nn.Linear(16, CLASSES)
        self.register_buffer("shift", torch.tensor(0.5))

    def forward(self, inputs):
        hidden = torch.relu(self.first(inputs.flatten(1)))
        return self.second(hidden + torch.tanh(hidden) + self.shift)


class Branching(Residual):
    """Control flow that depends on the data, which vmap refuses."""

    def forward(self, inputs):
        return super().forward(inputs if inputs.mean() > 0 else -inputs)


def normalised():
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(588, CLASSES)
    )


MODELS = {
    "linear": (lambda: models.build("linear", SHAPE, CLASSES, 0), "stacked"),
    "mlp": (lambda: models.build("mlp", SHAPE, CLASSES, 0), "stacked"),
    "cnn": (lambda: models.build("cnn", SHAPE, CLASSES, 0), "stacked"),
    "lenet": (lambda: models.build("lenet", SHAPE, CLASSES, 0), "stacked"),
    "odd layers": (
        lambda: nn.Sequential(
            nn.Sequential(nn.Conv2d(1, 4, (3, 2), stride=(2, 1), padding=(1, 0), bias=False)),
            *(nn.ReLU(inplace=True), nn.AvgPool2d(2), nn.Identity(), nn.Tanh(), nn.GELU()),
            *(nn.Flatten(), nn.Linear(112, CLASSES, bias=False)),
        ),
        "stacked",
    ),
    "dense on images": (
        lambda: nn.Sequential(nn.Linear(16, 3), nn.Flatten(), nn.Linear(48, CLASSES)),
        "vmap",
    ),
    "residual": (Residual, "vmap"),
    "dilated": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 2, 3, dilation=2), nn.Flatten(), nn.Linear(288, CLASSES)
        ),
        "vmap",
    ),
    "branching": (Branching, "loop"),
    "batch norm": (normalised, "loop"),
    "batch norm without statistics": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 3, 3),
            nn.BatchNorm2d(3, track_running_stats=False),
            *(nn.Flatten(), nn.Linear(588, CLASSES)),
        ),
        "vmap",
    ),
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


def train(trainer, model, seed=0, rate=0.1, round_number=0, clients=range(CLIENTS)):
    chunks = list(
        trainer.train(
            trainer.layout.read(model),
            PARTS,
            list(clients),
            learning_rates=[rate] * trainer.steps,
            seed=seed,
            round_number=round_number,
        )
    )
    return np.concatenate([c.updates for c in chunks]), np.concatenate([c.losses for c in chunks])


def trainer_of(model, samples, **options):
    return LocalTrainer(model, *samples, steps=STEPS, batch_size=BATCH, **options)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("name", MODELS)
def test_equals_a_loop_over_clients(name, momentum, samples):
    make, kind = MODELS[name]
    model = build(make)
    trainer = trainer_of(model, samples, momentum=momentum)
    assert trainer.kind == kind
    order = batches(PARTS, range(CLIENTS), steps=STEPS, batch_size=BATCH, seed=0, round_number=0)
    expected, losses = plain_loop(model, trainer.layout, samples, order, 0.1, momentum)
    found, found_losses = train(trainer, model)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=2e-6)
    np.testing.assert_allclose(found_losses, losses, rtol=1e-5)
    assert np.abs(expected).max() > 1e-3


@pytest.mark.parametrize("name", ["mlp", "cnn", "residual", "batch norm"])
def test_chunks_change_nothing(name, samples):
    model = build(MODELS[name][0])
    whole, _ = train(trainer_of(model, samples), model)
    pieces, _ = train(trainer_of(model, samples, client_chunk=2), model)
    np.testing.assert_allclose(pieces, whole, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["cnn", "residual"])
def test_repeats_by_seed_and_round(name, samples):
    model = build(MODELS[name][0])
    trainer = trainer_of(model, samples)
    first, _ = train(trainer, model)
    assert np.array_equal(train(trainer, model)[0], first)
    assert np.array_equal(train(trainer_of(model, samples), model)[0], first)
    assert not np.array_equal(train(trainer, model, seed=1)[0], first)
    assert not np.array_equal(train(trainer, model, round_number=1)[0], first)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(256, CLASSES)),
        lambda: nn.Sequential(nn.Flatten(), nn.AlphaDropout(0.5), nn.Linear(256, CLASSES)),
    ],
    ids=["stacked", "vmap"],
)
def test_dropout_differs_by_client_and_repeats_by_seed(make, samples):
    model = build(make)
    inputs, labels = samples
    same = torch.ones_like(inputs), torch.zeros_like(labels)
    trainer = LocalTrainer(model, *same, steps=1, batch_size=4)
    state = torch.get_rng_state()
    updates, _ = train(trainer, model)
    assert torch.equal(torch.get_rng_state(), state)
    assert not np.array_equal(updates[0], updates[1])  # same samples, other masks
    assert np.array_equal(train(trainer, model)[0], updates)


def test_batch_norm_sends_its_statistics_but_no_integers(samples):
    model = build(normalised)
    trainer = trainer_of(model, samples)
    assert {"1.running_mean", "1.running_var"} <= set(trainer.layout.names)
    assert "1.num_batches_tracked" not in trainer.layout.names
    assert trainer.layout.size == models.count_parameters(model) + 6


def test_constant_buffers_and_frozen_parameters_stay_home(samples):
    model = build(Residual)
    model.first.weight.requires_grad_(False)
    trainer = trainer_of(model, samples)
    assert trainer.layout.names == ("first.bias", "second.weight", "second.bias")
    frozen = build(MODELS["mlp"][0])
    frozen[1].weight.requires_grad_(False)
    trainer = trainer_of(frozen, samples)
    assert trainer.kind == "stacked"
    order = batches(PARTS, range(CLIENTS), steps=STEPS, batch_size=BATCH, seed=0, round_number=0)
    expected, _ = plain_loop(frozen, trainer.layout, samples, order, 0.1, 0.5)
    np.testing.assert_allclose(train(trainer, frozen)[0], expected, atol=2e-6)


class Unused(Residual):
    def __init__(self):
        super().__init__()
        self.spare = nn.Linear(2, 2)


@pytest.mark.parametrize("mode", ["off", "on"])
def test_parameters_that_are_not_used_stay(mode, samples, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda step, **options: step)
    model = build(Unused)
    trainer = trainer_of(model, samples, compile=mode)
    assert trainer.kind == "vmap"
    updates, _ = train(trainer, model)
    assert not updates[:, -6:].any()
    assert updates[:, :-6].any()


def test_memory_is_that_of_a_chunk(samples):
    model = build(MODELS["cnn"][0])
    trainer = trainer_of(model, samples, client_chunk=2)
    start = trainer.layout.read(model)
    rates = [0.1] * STEPS
    chunks = trainer.train(start, PARTS, [0, 1, 2], learning_rates=rates, seed=0, round_number=0)
    assert [chunk.clients for chunk in chunks] == [(0, 1), (2,)]
    with pytest.raises(ValueError, match="client_chunk must be at least 1"):
        trainer_of(model, samples, client_chunk=0)


def test_learning_rates_are_those_of_each_step(samples):
    model = build(MODELS["linear"][0])
    trainer = LocalTrainer(model, *samples, steps=2, batch_size=BATCH, momentum=0.0)
    start = trainer.layout.read(model)
    common = {"seed": 0, "round_number": 0}
    (both,) = trainer.train(start, PARTS, [0], learning_rates=[0.1, 0.0], **common)
    single = LocalTrainer(model, *samples, steps=1, batch_size=BATCH, momentum=0.0)
    order = batches(PARTS, [0], steps=2, batch_size=BATCH, seed=0, round_number=0)
    expected, _ = plain_loop(model, single.layout, samples, order[:1], 0.1, 0.0)
    np.testing.assert_allclose(both.updates, expected, atol=1e-6)
    with pytest.raises(ValueError, match="one entry for each of 2 steps"):
        list(trainer.train(start, PARTS, [0], learning_rates=[0.1], **common))


def test_a_model_without_parameters_is_refused(samples):
    with pytest.raises(ValueError, match="nothing to train"):
        trainer_of(nn.Flatten(), samples)


def test_tied_layers(samples):
    shared = build(lambda: nn.Linear(256, 256))
    model = nn.Sequential(nn.Flatten(), shared, nn.Tanh(), shared, build(lambda: nn.Linear(256, 4)))
    trainer = trainer_of(model, samples)
    order = batches(PARTS, range(CLIENTS), steps=STEPS, batch_size=BATCH, seed=0, round_number=0)
    expected, _ = plain_loop(model, trainer.layout, samples, order, 0.1, 0.5)
    np.testing.assert_allclose(train(trainer, model)[0], expected, atol=5e-6)


# Compilation


def test_compile_is_chosen_by_the_length_of_the_run(samples, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda step, **options: step)
    linear, convolved, residual = (build(MODELS[n][0]) for n in ("linear", "cnn", "residual"))
    assert not trainer_of(linear, samples, planned_steps=10_000).is_compiled
    assert trainer_of(linear, samples, planned_steps=10**6).is_compiled
    assert not trainer_of(linear, samples, planned_steps=10**6, compile="off").is_compiled
    assert trainer_of(linear, samples, compile="on").is_compiled
    assert not trainer_of(convolved, samples, planned_steps=10**6).is_compiled
    assert trainer_of(residual, samples, planned_steps=10**5).is_compiled
    assert not trainer_of(build(normalised), samples, compile="on").is_compiled
    with pytest.raises(ValueError, match="compile must be one of"):
        trainer_of(linear, samples, compile="maybe")


@pytest.mark.parametrize("name", ["mlp", "cnn", "residual"])
def test_the_step_that_is_compiled_equals_the_eager_one(name, samples, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda step, **options: step)
    model = build(MODELS[name][0])
    eager, _ = train(trainer_of(model, samples), model)
    compiled, _ = train(trainer_of(model, samples, compile="on"), model)
    np.testing.assert_allclose(compiled, eager, rtol=1e-3, atol=2e-6)


def test_goes_on_without_a_compiler(samples, monkeypatch):
    def failing(*arguments):
        raise RuntimeError("no C++ compiler found\nand much more")

    monkeypatch.setattr(torch, "compile", lambda step, **options: failing)
    model = build(MODELS["mlp"][0])
    trainer = trainer_of(model, samples, compile="on")
    with pytest.warns(RuntimeWarning, match=r"torch.compile failed \(RuntimeError: no C\+\+"):
        updates, _ = train(trainer, model)
    assert not trainer.is_compiled
    assert np.array_equal(updates, train(trainer_of(model, samples), model)[0])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["mlp", "cnn"])  # in one process: other shapes stay static too
def test_really_compiled(name, samples):
    model = build(MODELS[name][0])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="torch.compile failed")
        trainer = trainer_of(model, samples, compile="on")
        compiled, _ = train(trainer, model)
    assert trainer.is_compiled
    np.testing.assert_allclose(
        compiled, train(trainer_of(model, samples), model)[0], rtol=1e-3, atol=2e-6
    )


def test_thresholds_are_known_for_every_way_that_compiles():
    assert set(local._WORTH_COMPILING["cpu"]) == {"stacked", "vmap"}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_compiled_on_a_gpu(name, samples):
    model = build(MODELS[name][0])
    compiled = trainer_of(model, samples, planned_steps=10**6, device="cuda")
    updates, _ = train(compiled, model)
    assert compiled.is_compiled
    np.testing.assert_allclose(updates, train(trainer_of(model, samples), model)[0], atol=5e-6)
