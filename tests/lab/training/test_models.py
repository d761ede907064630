"""Models by name and of the user's own, and their entries as one vector."""

import pytest
import torch
from torch import nn

from jopeq_lab.training import models
from jopeq_lab.training.models import ModelVector

MNIST, CIFAR = (1, 28, 28), (3, 32, 32)
CASES = [
    ("linear", MNIST, 7_850),
    ("mlp", MNIST, 25_818),
    ("cnn", MNIST, 6_422),
    ("tanh-cnn", MNIST, 26_010),
    ("cifar-cnn", CIFAR, 169_578),
    ("lenet", CIFAR, 15_826),
]


def flat(model):
    return torch.cat([parameter.detach().ravel() for parameter in model.parameters()])


@pytest.mark.parametrize(("name", "shape", "count"), CASES)
def test_sizes_and_seeds(name, shape, count):
    assert tuple(name for name, _, _ in CASES) == models.NAMES
    before = torch.get_rng_state()
    model, same, other = (models.build(name, shape, 10, seed) for seed in (5, 5, 6))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(flat(model), flat(same))
    assert not torch.equal(flat(model), flat(other))
    assert models.count_parameters(model) == count
    assert f"{count:,}" in models.__doc__
    assert model(torch.rand(5, *shape)).shape == (5, 10)
    odd = models.build(name, (2, 22, 25), 7, seed=0)
    assert odd(torch.rand(2, 2, 22, 25)).shape == (2, 7)


def test_import_paths(tmp_path, monkeypatch):
    """A factory gets what it takes, and PyTorch's seed."""
    (tmp_path / "my_models.py").write_text(
        "from torch.nn import Linear\n"
        "class Nets:\n"
        "    small = staticmethod(lambda input_shape, classes: Linear(input_shape[0], classes))\n"
        "nothing = lambda: 3\n"
        "fixed = lambda: Linear(3, 2)\n"
        "every = lambda **given: Linear(given['classes'], given['seed'])\n"
        "wide = lambda width: Linear(width, 2)\n"
        "module, number = Linear(2, 2), 3\n"
    )
    (tmp_path / "broken_models.py").write_text("import package_that_is_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name, shape in (("Nets.small", (4, 5)), ("fixed", (2, 3)), ("every", (9, 4))):
        model, same = (models.build(f"my_models:{name}", (5, 1, 1), 4, 9) for _ in range(2))
        assert model.weight.shape == shape
        assert torch.equal(flat(model), flat(same))
    for path in (
        *("my_models:other", "my_models:number", "my_models:module", "my_models:nothing"),
        *("my_models:wide", "no_such_module:make", "broken_models:make", ".relative:make"),
        *("my_models", "my_models:", ":make", "resnet", ""),
    ):
        with pytest.raises(ValueError, match="model"):
            models.build(path, MNIST, 10, 0)


def normalised():
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 2))


def test_stacked_and_joined_are_inverse():
    model = normalised()
    layout = ModelVector(model)
    vector = torch.arange(float(layout.size))
    stacked = layout.stacked(vector, 2)
    assert stacked["0.weight"].shape == (2, 3, 1, 3, 3)
    assert torch.equal(layout.joined(stacked, 2), vector.expand(2, -1))
    layout.write(model, vector)
    assert torch.equal(layout.read(model), vector)


def test_running_variance_stays_positive():
    model = normalised()
    layout = ModelVector(model, frozenset({"1.running_var"}))
    layout.write(model, torch.full((layout.size,), -1.0))
    assert float(model[1].running_var.min()) == 0.0
    assert float(model[0].weight.detach().max()) == -1.0
