"""Whole runs: every scheme, repeated, diverging, killed and resumed."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
from torch import nn

import jopeq
from jopeq.federated import record
from jopeq.federated.metrics import evaluate
from jopeq.federated.record import Checkpoint, CheckpointError
from jopeq.federated.simulation import TrainConfig, train

KEY = bytes(range(32))
SECONDS = ("training_seconds", "coding_seconds", "evaluation_seconds")

pytestmark = pytest.mark.usefixtures("one_thread")


def steady(history):
    """Metrics without what the clock says."""
    return [{k: v for k, v in m.as_dict().items() if k not in SECONDS} for m in history]


def vector(result):
    return torch.cat([p.detach().reshape(-1) for p in result.model.parameters()])


@pytest.mark.parametrize(
    "scheme",
    [
        jopeq.scheme("none"),
        jopeq.scheme("sdq", rate=3),
        jopeq.scheme("sdq", rate=3, per="tensor"),
        jopeq.scheme("laplace", epsilon=8),
        jopeq.scheme("jopeq", epsilon=8, rate=3),
        jopeq.scheme("jopeq", epsilon=8, rate=2, lattice="A2", rotate=True),
        jopeq.scheme("response", epsilon=6, rate=2),
    ],
    ids=lambda s: s.spec[:30],
)
def test_learns_through_every_scheme(scheme, run):
    result = run(scheme=scheme, rounds=8, noise_key=KEY)
    assert result.test_accuracy > 0.9
    last = result.history[-1]
    assert result.kind == "stacked"
    assert result.dimension == 51
    assert last.bits_per_parameter == 8 * last.bytes_per_client / 51
    assert last.epsilon_client == pytest.approx(8 * last.epsilon_update)
    assert last.nominal_sample == scheme.guarantee.nominal
    assert (last.snr == math.inf) == (scheme.name == "none")


def test_seed_and_key_determine_everything(run):
    scheme = jopeq.scheme("jopeq", epsilon=4, rate=1)
    first = run(scheme=scheme, noise_key=KEY)
    again = run(scheme=scheme, noise_key=KEY)
    assert torch.equal(vector(first), vector(again))
    assert steady(first.history) == steady(again.history)
    assert not torch.equal(vector(first), vector(run(scheme=scheme, noise_key=bytes(32))))
    assert not torch.equal(vector(first), vector(run(scheme=scheme, noise_key=KEY, seed=1)))


def test_noise_never_repeats_by_default(run):
    scheme = jopeq.scheme("jopeq", epsilon=4, rate=1)
    one, two = run(scheme=scheme), run(scheme=scheme)
    assert one.history[0].train_loss == two.history[0].train_loss  # same batches and start
    assert not torch.equal(vector(one), vector(two))
    plain = run(), run()
    assert torch.equal(vector(plain[0]), vector(plain[1]))


def test_chunks_give_the_same_run(run):
    scheme = jopeq.scheme("sdq", rate=4)
    whole = run(scheme=scheme, noise_key=KEY)
    pieces = run(scheme=scheme, noise_key=KEY, client_chunk=1)
    torch.testing.assert_close(vector(whole), vector(pieces), rtol=1e-3, atol=1e-4)


def test_batch_norm_and_integer_buffers(run):
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(16), nn.Linear(16, 3))
    for scheme, least in ((jopeq.scheme("laplace", epsilon=1), 0.0), (jopeq.scheme("none"), 0.9)):
        result = run(model=model, scheme=scheme, rounds=6, noise_key=KEY)
        assert result.kind == "loop"
        assert result.dimension == 51 + 32 + 32
        assert float(result.model[1].running_var.min()) >= 0.0
        assert int(result.model[1].num_batches_tracked) == 0
        assert result.test_accuracy > least
    assert int(model[1].num_batches_tracked) == 0  # the caller's model is left alone


def test_without_validation_the_last_round_counts(run):
    result = run(validation=0)
    assert result.best_round == 3
    assert result.history[0].validation_accuracy is None
    assert result.test == result.final_test


def test_the_models_are_those_that_were_tested(run, clusters):
    result = run(rounds=12)
    assert 0 < result.best_round < 12  # nothing is better than what names all samples rightly
    samples = clusters.test_inputs, clusters.test_labels
    assert evaluate(result.best_model, *samples) == result.test
    assert evaluate(result.model, *samples) == result.final_test != result.test


def test_divergence_stops_and_keeps_the_rest(tmp_path, clusters, short_config):
    config = short_config(rounds=50, server_lr=1e6, lr=1.0, model="mlp")
    result = train(config, dataset=clusters, out=tmp_path)
    assert "lower lr (1)" in result.diverged
    assert 0 < len(result.history) < 50
    assert len(record.read_rounds(tmp_path / record.ROUNDS)) == len(result.history)
    assert json.loads((tmp_path / record.SUMMARY).read_text())["diverged"] == result.diverged
    assert (tmp_path / record.CURVES).exists()


def test_progress_is_told_of_every_round(clusters, short_config):
    seen = []
    config = short_config()
    train(
        config,
        dataset=clusters,
        progress=lambda metrics, simulation: seen.append((metrics.round, simulation.dimension)),
    )
    assert seen == [(1, 51), (2, 51), (3, 51)]


def test_refuses_what_the_data_cannot_give(run, clusters, short_config):
    with pytest.raises(ValueError, match="clients must be at most the number of samples"):
        run(clients=500)
    with pytest.raises(ValueError, match="model must be one of"):
        train(short_config(model="transformer"), dataset=clusters)
    with pytest.raises(ValueError, match="data set must be one of"):
        train(TrainConfig(data="letters"))


# Checkpoints


def test_out_is_not_overwritten_by_accident(tmp_path, clusters, short_config):
    config = short_config()
    train(config, dataset=clusters, out=tmp_path)
    with pytest.raises(ValueError, match="already holds a run"):
        train(config, dataset=clusters, out=tmp_path)
    with pytest.raises(ValueError, match="need out"):
        train(config, dataset=clusters, resume=True)


def test_resume_extends_a_finished_run(tmp_path, clusters, short_config):
    scheme = jopeq.scheme("response", epsilon=4, rate=2)
    config = short_config(
        rounds=2, scheme=scheme, clip="adaptive", participation=0.5, noise_key=KEY
    )
    train(config, dataset=clusters, out=tmp_path / "a")
    longer = replace(config, scheme=scheme, rounds=5)
    resumed = train(longer, dataset=clusters, out=tmp_path / "a", resume=True)
    whole = train(longer, dataset=clusters, out=tmp_path / "b")
    assert torch.equal(vector(resumed), vector(whole))
    assert steady(resumed.history) == steady(whole.history)
    again = train(longer, dataset=clusters, out=tmp_path / "a", resume=True)
    assert torch.equal(vector(again), vector(whole))
    with pytest.raises(CheckpointError, match="lr was"):
        train(
            replace(longer, scheme=scheme, lr=0.2),
            dataset=clusters,
            out=tmp_path / "a",
            resume=True,
        )


CHILD = """
import sys, torch
torch.set_num_threads(1)
sys.path.insert(0, {tests!r})
from conftest import configured, make_clusters
from test_simulation import KILLED
from jopeq.federated.simulation import train
train(configured(**KILLED), dataset=make_clusters(), out=sys.argv[1], resume=True)
"""
KILLED = {
    "rounds": 150,
    "scheme": jopeq.scheme("jopeq", epsilon=4, rate=1),
    "participation": 0.5,
    "schedule": "plateau",
    "checkpoint_every": 7,
    "noise_key": KEY,
}


def test_a_killed_run_goes_on_bit_for_bit(tmp_path, clusters, short_config):
    """Killed outright wherever it happens to be, several times, then left to finish."""
    folder, lines = tmp_path / "killed", tmp_path / "killed" / record.ROUNDS
    command = [sys.executable, "-c", CHILD.format(tests=os.path.dirname(__file__)), str(folder)]
    source = os.path.dirname(os.path.dirname(jopeq.__file__))
    environment = {**os.environ, "PYTHONPATH": source}
    for target in (3, 40):
        with subprocess.Popen(command, env=environment) as child:
            deadline = time.monotonic() + 60
            while not lines.exists() or lines.read_text().count("\n") < target:
                assert child.poll() is None, "the child ended before it could be killed"
                assert time.monotonic() < deadline
                time.sleep(0.001)
            child.send_signal(signal.SIGKILL)
        assert child.returncode == -signal.SIGKILL
    saved = Checkpoint.load(folder / record.CHECKPOINT)
    assert 0 < len(saved.history) < 150
    assert len(saved.history) % 7 == 0
    with lines.open("a") as file:
        file.write('{"round": 1')  # as if killed in the middle of a line
    config = short_config(**KILLED)
    resumed = train(config, dataset=clusters, out=folder, resume=True)
    whole = train(config, dataset=clusters, out=tmp_path / "whole")
    assert torch.equal(vector(resumed), vector(whole))
    assert resumed.best_round == whole.best_round
    assert resumed.test == whole.test
    assert steady(record.read_rounds(lines)) == steady(whole.history)
