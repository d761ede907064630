"""Payloads on their way, one round after another, and whole runs."""

import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import jopeq
from jopeq_lab.training import record
from jopeq_lab.training.clients import Transport
from jopeq_lab.training.metrics import evaluate
from jopeq_lab.training.models import ModelVector
from jopeq_lab.training.partition import weights
from jopeq_lab.training.record import Checkpoint, CheckpointError
from jopeq_lab.training.simulation import DivergedError, Simulation, train
from tests.lab.training.small import CLUSTERS, run, short

LAYOUT = ModelVector(nn.Linear(16, 3))


def sent(transport, scheme, update, number=0, client=0):
    return transport.send(scheme, [update], number, [client])


def test_private_noise_never_repeats_and_public_dither_follows_the_seed():
    zeros, places = np.zeros(51, dtype=np.float32), [*product(range(3), repeat=2)]
    for scheme in (jopeq.scheme("laplace", epsilon=1, clip=1), jopeq.scheme("sdq", rate=2, clip=1)):
        transport, other = Transport(LAYOUT, 0), Transport(LAYOUT, 1)
        found = [sent(transport, scheme, zeros, *place).decoded[0].tobytes() for place in places]
        assert len(set(found)) == 9
        again = sent(transport, scheme, zeros, *places[0]).decoded[0].tobytes()
        assert (again == found[0]) == (scheme.name == "sdq")
        assert sent(other, scheme, zeros).decoded[0].tobytes() not in found


@pytest.mark.parametrize("per", ["update", "tensor"])
@pytest.mark.parametrize("bad", [np.nan, 1e38])
def test_an_update_that_diverged_stops_the_simulation(bad, per):
    scheme = jopeq.scheme("response", epsilon=4, rate=2, per=per)
    with pytest.raises(jopeq.UpdateError):
        sent(Transport(LAYOUT, 0), scheme, np.full(51, bad, dtype=np.float32))


def first_round(**options):
    """A simulation, and what its first round will train."""
    simulation = Simulation(short(**options), dataset=CLUSTERS)
    given = {"learning_rate": 0.1, "seed": 0, "round_number": 0}
    clients = simulation.federation
    some = clients.trainer.train(simulation.vector, clients.parts, range(4), **given)
    return simulation, simulation.vector.double(), some


def test_none_is_federated_averaging():
    """One round by hand: w + η_s Σ α_k h_k, clients of unequal size."""
    options = {"rounds": 1, "partition": "dirichlet", "alpha": 0.3, "server_lr": 0.5}
    simulation, start, some = first_round(**options)
    sizes = np.array([len(part) for part in simulation.federation.parts])
    assert len(set(sizes)) > 1
    metrics = simulation.step()
    expected = start.numpy() + 0.5 * (sizes / sizes.sum()) @ some.updates
    np.testing.assert_allclose(simulation.vector.numpy(), expected, rtol=1e-5, atol=1e-7)
    assert metrics.train_loss == pytest.approx((sizes / sizes.sum()) @ some.losses)


def test_the_average_is_that_of_jopeq_aggregate_bit_for_bit():
    scheme = jopeq.scheme("sdq", rate=2)
    simulation, start, some = first_round(scheme=scheme, partition="dirichlet")
    clients = simulation.federation
    seeds = [clients.transport.dither_seed(scheme, 0, client) for client in range(4)]
    payloads = [scheme.encode(h, seed=seed) for h, seed in zip(some.updates, seeds, strict=True)]
    simulation.step()
    average = jopeq.aggregate(payloads, weights(clients.parts), scheme=scheme)
    assert torch.equal(simulation.vector, (start + torch.from_numpy(average)).float())


def test_centered_inputs_are_twice_as_wide_about_zero():
    both = {name: 2 * getattr(CLUSTERS, name) - 1 for name in ("train_inputs", "test_inputs")}
    centered = train(short(centered=True), dataset=CLUSTERS)
    by_hand = train(short(), dataset=replace(CLUSTERS, **both))
    assert steady(centered.history) == steady(by_hand.history) != steady(run().history)
    assert centered.test == by_hand.test


def test_half_of_the_clients_take_part_and_epsilon_is_of_the_busiest():
    options = {"participation": 0.5, "rounds": 6, "partition": "dirichlet"}
    scheme = jopeq.scheme("laplace", epsilon=2)
    simulation = Simulation(short(**options, scheme=scheme), dataset=CLUSTERS)
    assert [simulation.step().participants for _ in range(6)] == [2] * 6
    assert simulation.federation.updates_sent.sum() == 12
    last, most = simulation.history[-1], simulation.federation.updates_sent.max()
    assert 3 <= most < 6
    assert last.epsilon_client / last.epsilon_update == most


@pytest.mark.parametrize(("server_lr", "fine"), [(1e38, 1), (1e40, 0)])
def test_a_round_that_diverges_changes_nothing(server_lr, fine):
    simulation = Simulation(short(lr=1.0, server_lr=server_lr), dataset=CLUSTERS)
    history = [simulation.step() for _ in range(fine)]
    vector = simulation.vector.clone()
    for _ in range(2):
        with pytest.raises(DivergedError):
            simulation.step()
        assert simulation.history == history
        assert torch.equal(simulation.vector, vector)
        assert simulation.best_round == fine
        assert simulation.federation.updates_sent.tolist() == [fine] * 4


def test_only_a_checkpoint_of_the_same_model_is_restored():
    first = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    small, large = (
        Simulation(short(), dataset=CLUSTERS, model=model)
        for model in (first, nn.Sequential(first, nn.Linear(3, 3)))
    )
    small.step()
    with pytest.raises(CheckpointError, match="51"):
        large.restore(small.checkpoint())
    assert large.history == []


def recorded(out, *, resume=False, **options):
    return train(short(**options), dataset=CLUSTERS, out=out, resume=resume)


SECONDS = ("training_seconds", "coding_seconds", "evaluation_seconds")


def steady(history):
    """Metrics without what the clock says."""
    return [{k: v for k, v in m.as_dict().items() if k not in SECONDS} for m in history]


def vector(result):
    return torch.cat([p.detach().reshape(-1) for p in result.model.parameters()])


@pytest.mark.parametrize(
    "scheme",
    [
        jopeq.scheme("none"),
        jopeq.scheme("sdq", rate=3, per="tensor"),
        jopeq.scheme("laplace", epsilon=8),
        jopeq.scheme("jopeq", epsilon=8, rate=2, lattice="A2"),
        jopeq.scheme("response", epsilon=6, rate=2),
    ],
    ids=lambda s: s.name,
)
def test_learns_through_every_scheme(scheme, fixed_noise):
    result = run(scheme=scheme, rounds=8)
    assert result.test_accuracy > 0.9
    last = result.history[-1]
    assert result.facts == {"way": "vmap"}
    assert result.dimension == 51
    assert last.bits_per_parameter == 8 * last.bytes_per_client / 51
    assert last.epsilon_client == pytest.approx(8 * last.epsilon_update)
    assert last.nominal_sample == scheme.guarantee.nominal
    assert (last.snr == math.inf) == (scheme.name == "none")


def test_the_seed_determines_everything_but_private_noise():
    scheme, public = jopeq.scheme("jopeq", epsilon=4, rate=1), jopeq.scheme("sdq", rate=2)
    one, two = run(scheme=scheme), run(scheme=scheme)
    assert one.history[0].train_loss == two.history[0].train_loss  # same batches and start
    assert not torch.equal(vector(one), vector(two))
    first, again, other = (run(scheme=public, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(vector(first), vector(again))
    assert steady(first.history) == steady(again.history)
    assert not torch.equal(vector(first), vector(other))


def test_batch_norm_and_integer_buffers(fixed_noise):
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(16), nn.Linear(16, 3))
    for scheme, least in ((jopeq.scheme("laplace", epsilon=1), 0.0), (jopeq.scheme("none"), 0.9)):
        result = run(model=model, scheme=scheme, rounds=6)
        assert result.facts == {"way": "loop"}
        assert result.dimension == 51 + 32 + 32
        assert float(result.model[1].running_var.min()) >= 0.0
        assert int(result.model[1].num_batches_tracked) == 0
        assert result.test_accuracy > least
    assert int(model[1].num_batches_tracked) == 0  # the caller's model is left alone


def test_the_models_are_those_that_were_tested():
    result = run(rounds=12)
    assert 0 < result.best_round < 12  # nothing is better than what names all samples rightly
    samples = CLUSTERS.test_inputs, CLUSTERS.test_labels
    assert evaluate(result.best_model, *samples) == result.test
    assert evaluate(result.model, *samples) == result.final_test != result.test


def test_divergence_stops_and_keeps_the_rest(tmp_path):
    result = recorded(tmp_path, rounds=50, server_lr=1e6, lr=1.0, model="mlp")
    assert "lower lr (1)" in result.diverged
    assert 0 < len(result.history) < 50
    assert len(record.read_rounds(tmp_path / record.ROUNDS)) == len(result.history)
    assert json.loads((tmp_path / record.SUMMARY).read_text())["diverged"] == result.diverged
    assert (tmp_path / record.CURVES).exists()


# Checkpoints


def test_out_is_not_overwritten_by_accident(tmp_path):
    recorded(tmp_path)
    with pytest.raises(ValueError, match="already holds a run"):
        recorded(tmp_path)
    with pytest.raises(ValueError, match="out"):
        recorded(None, resume=True)
    foreign = tmp_path / "mine" / "config.json"
    foreign.parent.mkdir()
    foreign.write_text("of another program")
    with pytest.raises(ValueError, match=r"config\.json"):
        recorded(foreign.parent)
    assert foreign.read_text() == "of another program"


CHILD = """
import os, signal, sys, torch
torch.set_num_threads(1)
from jopeq_lab.training.record import Recorder
from tests.lab.training.test_simulation import KILLED, recorded
add = Recorder.add
def add_and_die(self, metrics):
    add(self, metrics)
    if metrics.round == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
Recorder.add = add_and_die
recorded(sys.argv[1], resume=True, **KILLED)
"""
KILLED = {
    "rounds": 22,
    "scheme": jopeq.scheme("sdq", rate=1),
    "participation": 0.5,
    "schedule": "client-plateau",
    "plateau_patience": 2,
    "keep_momentum": True,
    "checkpoint_every": 7,
}


def test_a_killed_run_goes_on_bit_for_bit(tmp_path):
    """Killed outright before its first checkpoint and between two, then left to finish."""
    folder, lines = tmp_path / "killed", tmp_path / "killed" / record.ROUNDS
    search = os.pathsep.join((str(Path(jopeq.__file__).parents[1]), str(Path(__file__).parents[3])))
    for last in ("3", "19"):
        command = [sys.executable, "-c", CHILD, str(folder), last]
        child = subprocess.run(command, env={**os.environ, "PYTHONPATH": search}, check=False)
        assert child.returncode == -signal.SIGKILL
    assert len(Checkpoint.load(folder / record.CHECKPOINT).history) == 14
    with lines.open("a") as file:
        file.write('{"round": 1')  # as if killed in the middle of a line
    resumed = recorded(folder, resume=True, **KILLED)
    whole = recorded(tmp_path / "whole", **KILLED)
    assert torch.equal(vector(resumed), vector(whole))
    assert resumed.best_round == whole.best_round
    assert resumed.test == whole.test
    assert steady(record.read_rounds(lines)) == steady(whole.history)
