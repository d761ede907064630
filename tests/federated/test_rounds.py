"""One round after another: the average, the weights, what is spent, what is undone."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import jopeq
from jopeq.federated.simulation import DivergedError, Simulation, train

KEY = bytes(range(32))

pytestmark = pytest.mark.usefixtures("one_thread")


def test_none_is_federated_averaging(clusters, short_config):
    """One round by hand: w + η_s Σ α_k h_k, clients of unequal size."""
    options = {"rounds": 1, "partition": "dirichlet", "alpha": 0.3, "server_lr": 0.5}
    simulation = Simulation(short_config(**options), dataset=clusters)
    start = simulation.vector.clone()
    sizes = np.array([len(part) for part in simulation._parts])
    assert len(set(sizes)) > 1
    (some,) = simulation.trainer.train(
        start, simulation._parts, range(4), learning_rates=[0.1] * 5, seed=0, round_number=0
    )
    metrics = simulation.step()
    expected = start.double().numpy() + 0.5 * (sizes / sizes.sum()) @ some.updates
    np.testing.assert_allclose(simulation.vector.numpy(), expected, rtol=1e-5, atol=1e-7)
    assert metrics.train_loss == pytest.approx((sizes / sizes.sum()) @ some.losses)


def test_centered_inputs_are_twice_as_wide_about_zero(clusters, short_config):
    wide = replace(
        clusters,
        train_inputs=2 * clusters.train_inputs - 1,
        test_inputs=2 * clusters.test_inputs - 1,
    )
    plain, centered, by_hand = (
        train(short_config(centered=flag), dataset=inputs)
        for flag, inputs in ((False, clusters), (True, clusters), (False, wide))
    )
    losses = [[m.validation_loss for m in run.history] for run in (plain, centered, by_hand)]
    assert losses[1] == losses[2] != losses[0]
    assert centered.test == by_hand.test


def test_weights_are_those_of_the_participants(clusters, short_config):
    options = {"participation": 0.5, "rounds": 6, "partition": "dirichlet"}
    simulation = Simulation(short_config(**options, scheme="none"), dataset=clusters)
    for _ in range(6):
        assert simulation.step().participants == 2
    assert simulation._updates_sent.sum() == 12
    assert simulation._updates_sent.max() < 6


def test_client_epsilon_is_of_the_busiest_client(run):
    scheme = jopeq.scheme("laplace", epsilon=2)
    result = run(scheme=scheme, participation=0.5, rounds=6)
    last = result.history[-1]
    ratio = last.epsilon_client / last.epsilon_update
    assert 3 <= ratio < 6
    assert ratio == int(ratio)


def test_adaptive_clip_moves_and_is_charged(run):
    scheme = jopeq.scheme("response", epsilon=4, rate=2)
    options = {"clip": "adaptive", "initial_clip": 100.0, "clip_epsilon": 2.0, "rounds": 8}
    result = run(scheme=scheme, noise_key=KEY, clip_learning_rate=1.0, **options)
    clips = [m.clip for m in result.history]
    assert clips[0] == 100.0
    assert clips[-1] < 30.0
    assert result.history[0].nominal_update == pytest.approx(51 * 4 + 2)
    fixed = run(scheme=scheme, clip=0.5)
    assert {m.clip for m in fixed.history} == {0.5}
    assert fixed.history[0].nominal_update == pytest.approx(51 * 4)


def test_best_round_is_what_is_tested(clusters, short_config):
    simulation = Simulation(short_config(server_lr=30.0, lr=1.0), dataset=clusters)
    vectors = []
    for _ in range(3):
        simulation.step()
        vectors.append(simulation.vector.clone())
    accuracies = [m.validation_accuracy for m in simulation.history]
    best = int(np.argmax(accuracies))
    assert simulation.best_round == best + 1
    assert torch.equal(simulation.best_vector, vectors[best])


@pytest.mark.parametrize(
    ("server_lr", "fine", "message"),
    [
        (1e38, 1, r"round 2: the loss .* is not finite"),
        (1e40, 0, "model is not finite after round 1"),
    ],
)
def test_a_round_that_diverges_changes_nothing(server_lr, fine, message, clusters, short_config):
    simulation = Simulation(short_config(lr=1.0, server_lr=server_lr), dataset=clusters)
    history = [simulation.step() for _ in range(fine)]
    vector = simulation.vector.clone()
    for _ in range(2):
        with pytest.raises(DivergedError, match=message):
            simulation.step()
        assert simulation.history == history
        assert torch.equal(simulation.vector, vector)
        assert simulation.best_round == fine
        assert simulation._updates_sent.tolist() == [fine] * 4


def test_only_a_checkpoint_of_the_same_model_is_restored(clusters, short_config):
    first, second = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)), nn.Linear(3, 3)
    small, large = (
        Simulation(short_config(), dataset=clusters, model=model)
        for model in (first, nn.Sequential(first, second))
    )
    small.step()
    with pytest.raises(ValueError, match="of a model of 51 entries, this one has 63"):
        large.restore(small.checkpoint())
    assert large.history == []


def test_theorem_schedule_shrinks(run):
    result = run(schedule="theorem")
    rates = [m.learning_rate for m in result.history]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == pytest.approx(0.1)


def test_threads_are_set_for_the_round_alone(run):
    seen, before = [], torch.get_num_threads()

    class Watching(nn.Linear):
        def forward(self, inputs):
            seen.append(torch.get_num_threads())
            return super().forward(inputs.flatten(1))

    run(model=Watching(16, 3), threads=before + 1, rounds=1)
    assert before + 1 in seen
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(("tf32", "precision"), [(True, "high"), (False, "highest")])
def test_tensor_cores_are_used_during_a_round_alone(
    tf32, precision, monkeypatch, clusters, short_config
):
    simulation = Simulation(short_config(), dataset=clusters)
    object.__setattr__(simulation.config, "tf32", tf32)  # without a GPU it is refused
    monkeypatch.setattr(simulation, "_step", torch.get_float32_matmul_precision)
    assert simulation.step() == precision
    assert torch.get_float32_matmul_precision() == "highest"
