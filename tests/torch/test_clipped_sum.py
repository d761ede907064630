"""Clipped gradients of records: Opacus's numbers, and rows of their own record alone."""

import sys
from functools import partial

import numpy as np
import pytest
import torch
from opacus.grad_sample import GradSampleModule
from torch import nn
from torch.nn import functional as F

from jopeq import kernels
from jopeq.sums import clipped_total
from jopeq.sums.clipped_total import UNITS, ClippedTotal, to_integers
from jopeq.torch import clipped_sum

CLIP = 0.3
DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)


class Attention(nn.Module):
    """One head, of linear layers that Opacus knows."""

    def __init__(self, width):
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x):
        return F.scaled_dot_product_attention(self.query(x), self.key(x), self.value(x))


class Encoder(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.embedding = nn.Embedding(20, width)
        self.attention, self.first, self.second = (
            Attention(width),
            nn.LayerNorm(width),
            nn.LayerNorm(width),
        )
        self.feed = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width))
        self.out = nn.Linear(width, 4)

    def forward(self, tokens):
        x = self.embedding(tokens)
        x = x + self.attention(self.first(x))
        return self.out((x + self.feed(self.second(x))).mean(1))


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(5, 1), nn.Linear(2, 1)

    def forward(self, left, right):
        return self.left(left) * self.right(right)


def frozen(*layers):
    body = nn.Sequential(*layers)
    return body.requires_grad_(False)


def make(name, count=37):
    """Model, inputs and labels."""
    generator = torch.Generator().manual_seed(count)
    torch.manual_seed(1)
    labels = torch.randint(4, (count,), generator=generator)
    images = torch.randn(count, 1, 12, 12, generator=generator)
    flat = images.flatten(1)
    if name == "linear":
        return nn.Linear(144, 4), flat, labels
    if name == "head":
        body = frozen(nn.Linear(144, 30), nn.BatchNorm1d(30).eval(), nn.Tanh())
        return nn.Sequential(*body, nn.Linear(30, 4)), flat, labels
    if name == "bias":
        model = nn.Linear(144, 4)
        model.weight.requires_grad_(False)
        return model, flat, labels
    if name == "odd":
        layers = (nn.Linear(144, 31), nn.Tanh(), nn.Linear(31, 7), nn.Tanh(), nn.Linear(7, 4))
        return nn.Sequential(*layers), flat, labels
    if name == "cnn":
        convolution = (nn.Conv2d(1, 8, 3), nn.GroupNorm(2, 8), nn.Tanh(), nn.MaxPool2d(2))
        return nn.Sequential(*convolution, nn.Flatten(), nn.Linear(200, 4)), images, labels
    if name == "partly frozen":
        model = make("cnn")[0]
        model[0].bias.requires_grad_(False)
        return model, images, labels
    tokens = torch.randint(20, (count, 9), generator=generator)
    return Encoder(), tokens, labels


MODELS = ("linear", "head", "bias", "odd", "cnn", "partly frozen", "encoder")


@pytest.fixture
def seat(monkeypatch):
    """Seats the records of the next calls in these slots."""

    def choose(slots):
        drawn = np.atleast_1d(slots)
        module = sys.modules["jopeq.torch.clipped_sum"]
        monkeypatch.setattr(module, "draw_slots", lambda count, _: drawn[:count])

    choose(np.arange(1000))
    return choose


def by_opacus(model, inputs, labels):
    """Opacus's gradient of every record."""
    per_record = GradSampleModule(model, loss_reduction="sum", strict=False)
    F.cross_entropy(per_record(inputs), labels, reduction="sum").backward()
    found = [p.grad_sample.flatten(1) for p in model.parameters() if p.requires_grad]
    return torch.cat(found, dim=1).numpy()


def test_a_patient_with_fewer_records_counts_where_a_blank_has_no_gradient():
    """The root has none at 0, which is what the model gives for an empty slot."""
    inputs, model = torch.ones(4, 3), nn.Linear(3, 1, bias=False)
    given = {"clip": 1.0, "group": [0, 1, 2, 2], "most_rows": 2}
    loss = lambda outputs, targets: outputs.square().sum().sqrt()  # noqa: E731
    total = clipped_sum(model, loss, inputs, torch.zeros(4), **given)
    assert np.linalg.norm(total.to_numpy()) == pytest.approx(3.0, rel=1e-4)


def test_a_layers_hook_is_a_part_of_the_model():
    model, inputs, labels = make("linear")
    layers = nn.Sequential(model, nn.Tanh())
    expected = clipped_sum(layers, F.cross_entropy, inputs, labels, clip=0.5).to_numpy()
    model.register_forward_hook(lambda layer, given, outputs: outputs.tanh())
    found = clipped_sum(model, F.cross_entropy, inputs, labels, clip=0.5).to_numpy()
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("name", MODELS)
def test_the_total_is_opacus_own(name):
    model, inputs, labels = make(name)
    total = clipped_sum(model, F.cross_entropy, inputs, labels, CLIP)
    gradients = by_opacus(model, inputs, labels)
    wanted = gradients * np.minimum(1, CLIP / np.linalg.norm(gradients, axis=1))[:, None]
    assert np.abs(total.to_numpy() - wanted.sum(0)).max() < 37 * CLIP * 2e-6
    assert np.linalg.norm(wanted.sum(0)) > CLIP  # not lost in the tolerance


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", MODELS)
def test_every_row_depends_on_its_record_alone(name, device, seat):
    model, inputs, labels = (part.to(device) for part in make(name))
    slots = np.random.default_rng(5).permutation(48)[:37]

    def total(some, chunk=12):  # on a GPU four of them are a graph
        seat(slots[some])
        mine = (inputs[some], labels[some])
        return clipped_sum(model, F.cross_entropy, *mine, CLIP, chunk=chunk, padded=48).values

    everybody = np.arange(37)
    rows = np.array([total(everybody[at : at + 1]) for at in everybody])
    assert (total(everybody) == rows.sum(0)).all()
    for gone in (0, 11, 36):
        assert (total(everybody) - total(np.delete(everybody, gone)) == rows[gone]).all()
    order = np.random.default_rng(3).permutation(37)
    assert (total(order) == total(everybody)).all()
    other = total(everybody, chunk=8)  # other products
    assert np.abs(other - total(everybody)).max() <= 37 * UNITS * 2.0**-20


@pytest.mark.parametrize("name", ["head", "cnn"])
def test_a_group_is_clipped_as_one(name, seat):
    model, inputs, labels = make(name)
    group = np.random.default_rng(1).integers(0, 6, 37)
    group[5:25] = 9  # longer than a chunk
    gradients = []
    for one in np.unique(group):
        mine = torch.tensor(group == one)
        model.zero_grad()
        F.cross_entropy(model(inputs[mine]), labels[mine], reduction="sum").backward()
        found = [p.grad.flatten() for p in model.parameters() if p.requires_grad]
        gradients.append(torch.cat(found).double().numpy())
    given = {"group": group, "most_rows": 30}
    total = clipped_sum(model, F.cross_entropy, inputs, labels, CLIP, chunk=8, **given)
    wanted = to_integers(np.array(gradients), CLIP).sum(0)
    assert np.abs(total.values - wanted).max() <= len(gradients) * UNITS * 2e-6
    alone = clipped_sum(model, F.cross_entropy, inputs, labels, CLIP, group=range(37), most_rows=1)
    assert (alone.values == clipped_sum(model, F.cross_entropy, inputs, labels, CLIP).values).all()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "loss",
    [F.cross_entropy, nn.CrossEntropyLoss(), partial(F.cross_entropy, label_smoothing=0.1),
     lambda outputs, targets: F.cross_entropy(outputs, targets)],
)  # fmt: skip
def test_bad_records_count_as_zeros(name, loss, recwarn, caplog, seat):
    model, inputs, labels = make(name, count=12)
    good = clipped_sum(model, loss, inputs[:9], labels[:9], CLIP, chunk=8, padded=16)
    labels[9], labels[10] = 4, -1
    if inputs.is_floating_point():
        inputs[11] = torch.nan
    else:
        inputs[11, 0] = 20  # no such token
    all_of_them = clipped_sum(model, loss, inputs, labels, CLIP, chunk=8, padded=16)
    assert (all_of_them.values == good.values).all()
    assert not recwarn.list
    assert "3 of the 12 records" in caplog.text
    assert "PyTorch stops" not in caplog.text  # on a GPU it would do so for good


@pytest.mark.parametrize("mode", ["off", "on"])
@pytest.mark.parametrize("name", ["head", "cnn"])
@pytest.mark.parametrize("group", [None, 3])
def test_padding_is_the_work_of_records(name, group, mode, monkeypatch, seat):
    model, inputs, labels = make(name)
    kernels.load()
    added, add_up, add_products = [], clipped_total.add_up, kernels.cpu.add_products
    monkeypatch.setattr(
        clipped_total, "add_up", lambda rows, *rest: (added.append(len(rows)), add_up(rows, *rest))
    )
    monkeypatch.setattr(
        kernels.cpu, "add_products",
        lambda parts, *rest: (added.append(len(parts[0])), add_products(parts, *rest)),
    )  # fmt: skip
    kernels.use(mode)
    work = set()
    for count in (0, 1, 12, 37):
        mine = (model, F.cross_entropy, inputs[:count], labels[:count], CLIP)
        owners = None if group is None else np.arange(count) * group  # a record each
        added.clear()
        rows = None if group is None else 1
        padded = clipped_sum(*mine, group=owners, most_rows=rows, chunk=8, padded=40)
        work.add(sum(added))
        plain = clipped_sum(*mine, group=owners, most_rows=rows, chunk=8)
        assert (padded.values == plain.values).all()
    kernels.use(None)
    assert work == {40}


def test_labels_that_the_loss_ignores_are_no_bad_labels():
    model = nn.Sequential(nn.Conv2d(1, 4, 1))
    inputs, labels = torch.randn(3, 1, 2, 2), torch.tensor([[[0, 255], [1, 3]]] * 3)
    loss = nn.CrossEntropyLoss(ignore_index=255)
    assert np.abs(clipped_sum(model, loss, inputs, labels, CLIP).values).max() > 0
    assert not clipped_sum(model, F.cross_entropy, inputs, labels, CLIP).values.any()


def test_nothing_of_the_model_changes_and_other_outputs_work():
    model = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1)).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    inputs, targets = torch.randn(20, 5), torch.randn(20, 1)
    total = clipped_sum(model, F.mse_loss, inputs, targets, 1)
    assert all((value == before[name]).all() for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    two = clipped_sum(Both(), F.mse_loss, (inputs, inputs[:, :2]), targets, 1.0)
    assert np.abs(two.values).min() > 0
    assert np.abs(total.values).max() > 0
    assert not clipped_sum(model, F.mse_loss, inputs[:0], targets[:0], 1.0).values.any()


class Asking(nn.Linear):
    """Reads a number of its own: a graph cannot hold that."""

    def forward(self, x):
        return super().forward(x) * self.bias.detach().abs().max().item()


@pytest.mark.parametrize("device", DEVICES)
def test_work_that_no_graph_holds(device):
    _, inputs, labels = make("linear")
    torch.manual_seed(4)
    model, totals = Asking(144, 4), []
    for where in ("cpu", device, device):
        given = (part.to(where) for part in (inputs, labels))
        totals.append(clipped_sum(model.to(where), F.cross_entropy, *given, CLIP, chunk=8))
    assert (totals[1].values == totals[2].values).all()
    assert np.abs(totals[0].to_numpy() - totals[1].to_numpy()).max() < 37 * CLIP * 2e-6


def test_sequences_and_layers_of_torch_itself():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    model = nn.Sequential(layer, nn.Linear(8, 3))  # a row for each place: no plain linear head
    inputs, labels = torch.randn(9, 4, 8), torch.randint(3, (9, 4))

    def loss(outputs, targets):
        return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())

    for is_frozen in (False, True):
        layer.requires_grad_(not is_frozen)
        for mode in (False, True):
            total = clipped_sum(model.train(mode), loss, inputs, labels, CLIP)
            rows = []
            for x, y in zip(inputs, labels, strict=True):
                model.zero_grad()
                loss(model(x[None]), y[None]).backward()
                rows.append(
                    torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad])
                )
            wanted = ClippedTotal(total.dimension, CLIP).add(torch.stack(rows)).to_numpy()
            assert np.abs(total.to_numpy() - wanted).max() < 9 * CLIP * 2e-6


class Noisy(nn.Module):
    def forward(self, x):
        return F.dropout(x, 0.5, self.training)


REFUSED = [
    nn.BatchNorm1d(4),
    nn.BatchNorm1d(4, track_running_stats=False).eval(),
    nn.SyncBatchNorm(4),
    nn.InstanceNorm1d(4, track_running_stats=True),
    nn.Dropout(0.1),
    nn.AlphaDropout(0.1),
    nn.MultiheadAttention(4, 1, dropout=0.1),
    Noisy(),
]


@pytest.mark.parametrize("layer", REFUSED, ids=lambda layer: type(layer).__name__)
@pytest.mark.parametrize("is_frozen", [False, True])
def test_layers_that_mix_records_are_refused(layer, is_frozen):
    first = nn.Linear(4, 4).requires_grad_(not is_frozen)
    model = nn.Sequential(first, layer.requires_grad_(not is_frozen), nn.Linear(4, 2))
    with pytest.raises(ValueError, match="model"):
        clipped_sum(model, F.cross_entropy, torch.randn(3, 4), torch.zeros(3).long(), CLIP)


@pytest.mark.parametrize(
    ("change", "parameter"),
    [
        ({"clip": 0.0}, "clip"),
        ({"clip": -1}, "clip"),
        ({"clip": "1"}, "clip"),
        ({"chunk": 4}, "chunk"),
        ({"chunk": 8.5}, "chunk"),
        ({"targets": torch.zeros(2).long()}, "targets"),
        ({"inputs": torch.tensor(1.0)}, "inputs"),
        ({"inputs": torch.zeros(3, 9)}, "model"),
        ({"inputs": [torch.zeros(4), torch.zeros(4), torch.zeros(5)]}, "records"),
        ({"group": [0, 1]}, "group"),
        ({"model": nn.Linear(4, 2).requires_grad_(False)}, "model"),
    ],
)
def test_bad_arguments_are_refused(change, parameter):
    fine = {"model": nn.Linear(4, 2), "loss": F.cross_entropy, "inputs": torch.zeros(3, 4)}
    fine |= {"targets": torch.zeros(3).long(), "clip": 1.0}
    with pytest.raises(ValueError, match=parameter):
        clipped_sum(**fine | change)
