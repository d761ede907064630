"""Models by name and of the user's own, and their entries as one vector."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from jopeq.federated import models
from jopeq.federated.models import ModelVector, changing_buffers

MNIST, CIFAR = (1, 28, 28), (3, 32, 32)
CASES = [
    ("linear", MNIST, 7_850),
    ("mlp", MNIST, 25_818),
    ("cnn", MNIST, 6_422),
    ("cifar-cnn", CIFAR, 169_578),
    ("lenet", CIFAR, 15_826),
]
SMALLEST = {"linear": 1, "mlp": 1, "cnn": 16, "cifar-cnn": 22, "lenet": 1}


@pytest.fixture(autouse=True)
def one_thread():
    """Threads of tiny tensors wait for one another, for seconds where the machine is busy."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def flat(model):
    return torch.cat([parameter.detach().ravel() for parameter in model.parameters()])


@pytest.mark.parametrize(("name", "shape", "count"), CASES)
def test_sizes(name, shape, count):
    assert tuple(name for name, _, _ in CASES) == models.NAMES
    model = models.build(name, shape, 10, seed=0)
    assert models.count_parameters(model) == count
    assert f"{count:,}" in models.__doc__
    assert model(torch.rand(5, *shape)).shape == (5, 10)
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    assert not list(model.buffers())


@pytest.mark.parametrize("name", models.NAMES)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (2, 22, 25)])
def test_other_inputs_and_classes(name, shape):
    model = models.build(name, shape, 7, seed=0)
    assert model(torch.rand(2, *shape)).shape == (2, 7)


@pytest.mark.parametrize(("name", "side"), SMALLEST.items())
def test_smallest_images(name, side):
    shape = (1, side, side + 3)
    assert models.build(name, shape, 10, seed=0)(torch.rand(1, *shape)).shape == (1, 10)
    if side > 1:
        with pytest.raises(ValueError, match=f"'{name}' needs images of at least {side}×{side}"):
            models.build(name, (1, side + 9, side - 1), 10, seed=0)


@pytest.mark.parametrize(("name", "shape", "_"), CASES)
def test_seeds(name, shape, _):
    before = torch.get_rng_state()
    one, same, other = (flat(models.build(name, shape, 10, seed)) for seed in (5, 5, 6))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(before, torch.get_rng_state())


def test_global_state_is_restored_after_errors():
    before = torch.get_rng_state()

    def broken():
        torch.rand(3)
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        models.build(broken, MNIST, 10, 0)
    assert torch.equal(before, torch.get_rng_state())


def test_default_device_is_ignored():
    with torch.device("meta"):
        model = models.build("linear", MNIST, 10, 0)
    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}


def test_lenet_is_uniform_on_half(assert_follows):
    values = flat(models.build("lenet", CIFAR, 10, seed=3)).numpy()
    assert_follows(values, lambda x: np.clip(x + 0.5, 0, 1))
    layers = [layer for layer in models.build("lenet", CIFAR, 10, 0) if hasattr(layer, "weight")]
    assert [layer.stride[0] for layer in layers[:-1]] == [2, 2, 1]
    assert layers[-1].in_features == 768


def test_cifar_cnn_has_dropout():
    model = models.build("cifar-cnn", CIFAR, 10, 0)
    assert [layer.p for layer in model if isinstance(layer, nn.Dropout)] == [0.2] * 3
    assert sum(isinstance(layer, nn.Linear) for layer in model) == 4


# The user's own models


class Own(nn.Module):
    def __init__(self, classes, width=3):
        super().__init__()
        self.layer = nn.Linear(width, classes)


def own_factory(input_shape, classes, seed):
    model = Own(classes, width=input_shape[0])
    model.seed = seed
    return model


def test_factories():
    model = models.build(own_factory, (5, 1, 1), 4, 9)
    assert (model.layer.in_features, model.layer.out_features, model.seed) == (5, 4, 9)
    assert models.resolve(Own)(MNIST, 4, 0).layer.out_features == 4
    assert models.resolve(lambda: Own(2))(MNIST, 4, 0).layer.out_features == 2
    assert models.resolve(lambda **given: Own(given["seed"]))(MNIST, 4, 6).layer.out_features == 6
    assert torch.equal(
        flat(models.build(Own, MNIST, 4, 1)),
        flat(models.build(lambda classes: Own(4), MNIST, 4, 1)),
    )
    assert not torch.equal(
        flat(models.build(Own, MNIST, 4, 1)), flat(models.build(Own, MNIST, 4, 2))
    )


def test_modules_are_copied():
    mine = Own(4)
    made = models.build(mine, MNIST, 4, 0)
    assert made is not mine
    assert torch.equal(flat(made), flat(mine))


def test_import_paths(tmp_path, monkeypatch):
    (tmp_path / "my_models.py").write_text(
        "import torch\n"
        "class Nets:\n"
        "    @staticmethod\n"
        "    def small(input_shape, classes):\n"
        "        return torch.nn.Linear(input_shape[0], classes)\n"
        "def nothing():\n"
        "    return 3\n"
        "def wide(width):\n"
        "    return torch.nn.Linear(width, 2)\n"
        "module = torch.nn.Linear(2, 2)\n"
        "number = 3\n"
    )
    (tmp_path / "broken_models.py").write_text("import package_that_is_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert models.build("my_models:Nets.small", (5, 1, 1), 4, 0).weight.shape == (4, 5)
    for path, message in [
        ("my_models:other", "module 'my_models' has no 'other'"),
        ("my_models:number", "must name a function or class that returns an nn.Module, it names i"),
        ("my_models:module", "must name a function or class"),
        ("my_models:nothing", "must return an nn.Module, it returned int"),
        ("my_models:wide", "needs parameter 'width', but is given only input_shape, classes, seed"),
        ("no_such_module:make", "module 'no_such_module' cannot be imported.*PYTHONPATH"),
        ("broken_models:make", "cannot be imported.*package_that_is_not_there"),
        (".relative:make", "cannot be imported"),
        ("my_models", "one of linear, mlp, cnn, cifar-cnn, lenet or 'package.module:factory'"),
        ("my_models:", "one of linear"),
        (":make", "one of linear"),
        ("resnet", "one of linear"),
        ("", "one of linear"),
    ]:
        with pytest.raises(ValueError, match=message):
            models.build(path, MNIST, 10, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, MNIST, 10, 0), "model must be a name, an import path"),
        (("linear", (28, 28), 10, 0), r"input_shape must be \(channels, height, width\)"),
        (("linear", (0, 28, 28), 10, 0), "input_shape must be"),
        (("linear", (1.0, 28, 28), 10, 0), "input_shape must be"),
        (("linear", 28, 10, 0), "input_shape must be"),
        (("linear", MNIST, 0, 0), "classes must be a whole number of at least 1, got 0"),
        (("linear", MNIST, True, 0), "classes must be a whole number"),
        (("linear", MNIST, 10, -1), "seed must be a whole number"),
        (("linear", MNIST, 10, 0.5), "seed must be a whole number"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        models.build(*arguments)


def test_numpy_integers_are_integers():
    shape = tuple(np.array([1, 8, 8]))
    assert models.count_parameters(models.build("linear", shape, np.int64(10), np.int32(3))) == 650


def test_torch_is_imported_by_nobody_else():
    code = (
        "import sys, jopeq, jopeq.schemes, jopeq.schemes.state\n"
        "assert 'torch' not in sys.modules\n"
        "import jopeq.federated\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_torch():
    code = (
        "import importlib.util as util\n"
        "real = util.find_spec\n"
        "util.find_spec = lambda name, *rest: None if name == 'torch' else real(name, *rest)\n"
        "try:\n"
        "    import jopeq.federated\n"
        "except ImportError as error:\n"
        "    assert 'jopeq[torch]' in str(error)\n"
        "else:\n"
        "    raise SystemExit('no error')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


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


def test_changing_buffers_are_found_without_changing_them():
    model = normalised()
    found = changing_buffers(model, torch.randn(2, 1, 4, 4))
    assert found == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert int(model[1].num_batches_tracked) == 0
    assert changing_buffers(nn.BatchNorm1d(2).requires_grad_(False), torch.ones(3, 2))
    assert not changing_buffers(nn.Linear(2, 2), torch.ones(3, 2))


def test_running_variance_stays_positive():
    model = normalised()
    layout = ModelVector(model, frozenset({"1.running_var"}))
    layout.write(model, torch.full((layout.size,), -1.0))
    assert float(model[1].running_var.min()) == 0.0
    assert float(model[0].weight.detach().max()) == -1.0
