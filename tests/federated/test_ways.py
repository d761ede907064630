"""Which way trains a model, and that its losses are those of every client alone."""

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional

from jopeq.federated import local as ways
from jopeq.federated.models import ModelVector

pytestmark = pytest.mark.usefixtures("one_thread")


def choose(model, samples, changes_buffers=False):
    inputs, labels = (part[:4] for part in samples)
    return ways.choose(model, ModelVector(model), inputs, labels, changes_buffers)


@pytest.mark.parametrize("name", ["linear", "mlp", "cnn", "residual", "dense on images"])
def test_losses_are_those_of_every_client_alone(name, build, samples):
    model = build(name)
    way = choose(model, samples)
    inputs, labels = samples[0][:15].view(3, 5, 1, 16, 16), samples[1][:15].view(3, 5)
    source = torch.Generator().manual_seed(2)
    parameters = {
        key: value.detach() + 0.1 * torch.randn(3, *value.shape, generator=source)
        for key, value in model.named_parameters()
    }
    expected = torch.stack(
        [
            functional.cross_entropy(
                functional_call(
                    model, {key: value[k] for key, value in parameters.items()}, inputs[k]
                ),
                labels[k],
            )
            for k in range(3)
        ]
    )
    assert expected.std() > 1e-3
    for losses in (way.losses, way.compilable):
        torch.testing.assert_close(losses(parameters, inputs, labels), expected)


def test_a_model_that_changes_its_buffers_is_trained_one_by_one(build, samples):
    way = choose(build("mlp"), samples, changes_buffers=True)
    assert (way.kind, way.losses, way.compilable) == ("loop", None, None)


def test_a_stacked_form_that_computes_something_else_is_not_taken(build, samples, monkeypatch):
    right = ways.stacked_forward

    def wrong(model):
        forward = right(model)
        shifted = lambda *arguments: forward(*arguments) + 0.01  # noqa: E731
        shifted.has_convolutions = False
        return shifted

    assert choose(build("mlp"), samples).kind == "stacked"
    monkeypatch.setattr(ways, "stacked_forward", wrong)
    assert choose(build("mlp"), samples).kind == "vmap"


def test_models_that_give_no_row_of_logits_are_not_stacked(samples):
    flat = nn.Sequential(nn.Conv2d(1, 4, 16))  # (N, 4, 1, 1)
    assert choose(flat, samples).kind != "stacked"


@pytest.mark.parametrize(
    ("name", "gains"), [("mlp", True), ("cnn", False), ("residual", True), ("branching", False)]
)
def test_a_compiler_is_worth_it_but_for_convolutions_on_a_cpu(name, gains, build, samples):
    assert choose(build(name), samples).gains_from_compiler is gains


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
