"""All clients at once give what a loop over them gives."""

import copy
import os
import warnings

import numpy as np
import pytest
import torch
from torch.nn import functional

from jopeq_lab.training import local
from jopeq_lab.training.local import batches, participants
from tests.lab.training.small import BATCH, PARTS, SAMPLES, STEPS, build, train, trainer_of

KINDS = {
    **dict.fromkeys(("linear", "mlp", "cnn", "lenet", "odd layers", "residual"), "vmap"),
    "branching": "loop",
    "batch norm": "loop",
    "batch norm without statistics": "vmap",
}


def plain_rounds(model, layout, momentum, rounds=1, factors=(1.0, 1.0, 1.0)):
    """Updates and losses of one client after another, the obvious way.

    Every round starts from the same weights; an optimizer lives through all of them.
    """
    (inputs, labels), start = SAMPLES, layout.read(model)
    updates, losses = np.zeros((rounds, 3, layout.size)), np.zeros((rounds, 3))
    for client, factor in enumerate(factors):
        mine = copy.deepcopy(model).train()
        trained = [p for p in mine.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(trained, lr=0.1 * factor, momentum=momentum)
        for number in range(rounds):
            layout.write(mine, start)
            given = {"steps": STEPS, "batch_size": BATCH, "seed": 0, "round_number": number}
            seen = []
            for indices in batches(PARTS, range(3), **given)[:, client]:
                optimizer.zero_grad()
                loss = functional.cross_entropy(mine(inputs[indices]), labels[indices])
                loss.backward()
                optimizer.step()
                seen.append(loss.item())
            updates[number, client] = (layout.read(mine) - start).numpy()
            losses[number, client] = np.mean(seen)
    return updates, losses


@pytest.fixture
def no_compiler(monkeypatch):
    """``torch.compile`` gives the step that would be compiled: the compiler is slow, and warns."""
    monkeypatch.setattr(torch, "compile", lambda step, **options: step)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("name", KINDS)
def test_equals_a_loop_over_clients(name, momentum):
    model = build(name)
    if name == "mlp":
        model[1].weight.requires_grad_(False)  # stays home
    trainer = trainer_of(model, momentum=momentum)
    assert trainer.kind == KINDS[name]
    (expected,), (losses,) = plain_rounds(model, trainer.layout, momentum)
    found, found_losses = train(trainer, model)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=2e-6)
    np.testing.assert_allclose(found_losses, losses, rtol=1e-5)
    assert np.abs(expected).max() > 1e-3


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize("mode", ["off", "on"])
@pytest.mark.parametrize("name", ["cnn", "residual", "batch norm"])
def test_kept_momentum_and_rates_of_clients(name, mode):
    """By vmap and in a loop, each also as the step that would be compiled."""
    model, factors = build(name), [1.0, 0.1, 0.5]
    trainer = trainer_of(model, momentum=0.5, compile=mode)
    momenta = trainer.zero_momenta(3)
    expected, _ = plain_rounds(model, trainer.layout, 0.5, 2, factors)
    for number in range(2):
        options = {"round_number": number, "rate_factors": factors, "momenta": momenta}
        found, _ = train(trainer, model, **options)
        np.testing.assert_allclose(found, expected[number], rtol=1e-3, atol=2e-6)


def test_batches_are_of_each_client_alone():
    given = {"steps": 4, "batch_size": 3, "seed": 0, "round_number": 2}
    order, alone = (batches(PARTS, clients, **given) for clients in ([0, 2], [2]))
    assert order.shape == (4, 2, 3)
    assert set(order[:, 0].flatten().tolist()) <= set(PARTS[0].tolist())
    assert set(order[:, 1].flatten().tolist()) == set(PARTS[2].tolist())
    assert torch.equal(alone[:, 0], order[:, 1])  # whoever else takes part
    seven = alone.flatten()[:7].tolist()  # all are seen before one is seen again
    assert sorted(seven) == PARTS[2].tolist()


def test_participants():
    assert participants(10, 1.0, 0, 0) == list(range(10))
    assert len(participants(10, 0.01, 0, 0)) == 1
    rounds = [tuple(participants(10, 0.3, 0, number)) for number in range(200)]
    assert {len(set(chosen)) for chosen in rounds} == {3}
    counts = np.bincount(np.ravel(rounds), minlength=10)
    assert counts.min() > 30  # 60 expected, standard deviation 6.5


# Compilation


@pytest.mark.filterwarnings("ignore")  # the compiler warns of itself
@pytest.mark.parametrize(
    "device",
    [
        pytest.param("cpu", marks=pytest.mark.slow),
        pytest.param(
            "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
        ),
    ],
)
@pytest.mark.parametrize("name", ["mlp", "cnn"])  # in one process: other shapes stay static too
def test_really_compiled(name, device):
    model = build(name)
    options = {"compile": "on"} if device == "cpu" else {"total_steps": 10**6}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="torch.compile failed")
        trainer = trainer_of(model, device=device, **options)
        compiled, _ = train(trainer, model)
    assert trainer.is_compiled
    expected, _ = train(trainer_of(model), model)
    rtol, atol = (1e-3, 2e-6) if device == "cpu" else (1e-7, 5e-6)
    np.testing.assert_allclose(compiled, expected, rtol=rtol, atol=atol)


def test_the_compiler_keeps_its_code_in_a_folder_of_the_users_own(
    tmp_path, monkeypatch, no_compiler
):
    """PyTorch's own folder lies in /tmp under a name that others can take first."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    assert local.Step(None, 0.0, is_compiled=True).is_compiled
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path.resolve() / "jopeq" / "inductor")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    (tmp_path / "jopeq").chmod(0o777)
    with pytest.warns(RuntimeWarning, match=r"torch\.compile"):
        assert not local.Step(None, 0.0, is_compiled=True).is_compiled
