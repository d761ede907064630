"""One record touches only its own row, whatever it is and whatever the server's weights are."""

import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from jopeq.statistics import Scoring
from jopeq.sums.clipped_total import UNITS
from jopeq.sums.record_sample import draw_slots
from jopeq.torch import clipped_sum, scored_sum
from jopeq.torch.clipped_sum import check_model
from jopeq.torch.records import read_records

MODULE = sys.modules["jopeq.torch.clipped_sum"]
CLASSES = Scoring(kind="classes")


class Broken:
    """An object that fails wherever it is touched."""

    def __array__(self, *_, **__):
        raise RuntimeError("no array")

    def __float__(self):
        raise ArithmeticError("no number")

    __len__ = __iter__ = __float__


ANYTHING = st.one_of(
    st.none(), st.text(max_size=4), st.booleans(), st.complex_numbers(), st.binary(max_size=3),
    st.floats(), st.integers(), st.just(Broken()), st.just(torch.zeros(9)),
    st.just([[1.0], [2, 3]]), st.just(torch.full((5,), torch.nan)), st.just(np.array(["a"] * 5)),
    st.just({}), st.just([]),
    st.lists(st.one_of(st.none(), st.floats(), st.text(max_size=2)), min_size=5, max_size=5),
)  # fmt: skip


def objects(found):
    """One column, as of a table with text in it."""
    column = np.empty(len(found), dtype=object)
    for at, one in enumerate(found):
        column[at] = one
    return column


FORMS = {
    "list": list,
    "objects": objects,
    "tensor": lambda found: torch.stack([torch.as_tensor(one) for one in found]),
}


def case(is_text, count=14):
    generator = torch.Generator().manual_seed(1)
    torch.manual_seed(2)
    labels = torch.randint(3, (count,), generator=generator)
    if is_text:
        inputs = torch.randint(20, (count, 5), generator=generator)
        return nn.Sequential(nn.Embedding(20, 4), nn.Flatten(), nn.Linear(20, 3)), inputs, labels
    return nn.Linear(5, 3), torch.randn(count, 5, generator=generator), labels


def test_a_patients_records_are_drawn_together():
    patients = np.array([7, 3, 7, 7, 9, 3])
    places = read_records(torch.zeros(6, 1), torch.zeros(6), group=patients).of_patients(2)
    assert places.tolist() == [[0, 2], [1, 5], [4, -1]]  # of 7 the first two, of 3, of 9
    with pytest.raises(ValueError, match="group"):
        read_records(torch.zeros(5, 1), torch.zeros(5), group=patients)


@given(
    value=ANYTHING, at=st.integers(0, 13), where=st.sampled_from(["inputs", "targets", "group"]),
    form=st.sampled_from(["list", "objects"]), is_text=st.booleans(), is_grouped=st.booleans(),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_no_record_moves_the_total_by_more_than_a_clip(value, at, where, form, is_text, is_grouped):
    model, inputs, labels = case(is_text)
    given = {"inputs": list(inputs), "targets": labels.tolist(), "group": [*range(7), *range(7)]}
    given[where][at] = value
    if not is_grouped:
        given["group"] = None
    options = {
        "example": (inputs[0], labels[0]),
        "padded": 16,
        "most_rows": 2 if is_grouped else None,
    }

    def totals(records):
        found = {name: FORMS[form](part) if part else None for name, part in records.items()}
        mine = (model, F.cross_entropy, found["inputs"], found["targets"], 0.3, found["group"], 8)
        more = {"group": mine[5], "chunk": 8, **options}
        scored = scored_sum(model.eval(), *mine[2:4], CLASSES, **more)
        options_of = (clipped_sum(*mine, **options), scored)
        return [total.values.astype(float) / UNITS for total in options_of]

    is_moved = is_grouped and where == "group"  # to a patient who may have two records already
    gone = {at, (at + 7) % 14} if is_grouped and not is_moved else {at}
    less = {name: part and [one for i, one in enumerate(part) if i not in gone]
            for name, part in given.items()}  # fmt: skip
    for whole, rest in zip(totals(given), totals(less), strict=True):
        assert np.linalg.norm(rest) > 0.9
        assert np.linalg.norm(whole - rest) <= 1 + is_moved + 1e-4


@pytest.mark.parametrize("form", FORMS)
def test_what_can_be_read_is_read_alike_from_every_container(form):
    _, inputs, labels = case(False)
    records = read_records(FORMS[form](inputs), FORMS[form](labels), (inputs[0], labels[0]))
    assert torch.equal(records.parts[0], inputs)
    assert torch.equal(records.parts[1], labels)
    assert records.is_good.all()
    given = [0.0, 1.5, math.nan, "2"]
    floats = read_records(inputs[:4].double(), FORMS["list"](given), (inputs[0], labels[0]))
    assert floats.is_good.tolist() == [True, False, False, True]
    assert floats.parts[1].tolist() == [0, 0, 0, 2]


class Stopping(nn.Module):
    """PyTorch stops at zeros, which become NaN and have no singular values."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(2, 3)

    def forward(self, x):
        return self.out(torch.linalg.svd(x * x / x)[1])


def test_blanks_raise_nothing(caplog):
    torch.manual_seed(0)
    good = 1.0 + torch.rand(9, 2, 2)
    model, labels = Stopping(), torch.arange(9) % 2
    given = {"example": (torch.eye(2) + 1.0, torch.tensor(0)), "padded": 24, "chunk": 8}
    total = clipped_sum(model, F.cross_entropy, good, labels, 1.0, **given)
    worse = torch.cat([good, torch.zeros(1, 2, 2)])
    more = clipped_sum(model, F.cross_entropy, worse, torch.arange(10) % 2, 1.0, **given)
    assert total.to_numpy() == pytest.approx(more.to_numpy(), abs=1e-5)
    assert np.abs(total.to_numpy()).max() > 0.4
    assert caplog.text.count("PyTorch stops at a record") == 1
    with pytest.raises(ValueError, match="example"):
        clipped_sum(model, F.cross_entropy, good, labels, 1.0)


class Made(nn.Module):
    """An operation on a record's numbers and parameters, then a linear layer."""

    def __init__(self, operation):
        super().__init__()
        self.operation = operation
        self.table, self.out = nn.Parameter(torch.randn(4, 4)), nn.Linear(4, 1)

    def forward(self, x):
        return self.out(self.operation(x, self.table).flatten(1)).squeeze(-1)


def square(x):
    return x.view(-1, 2, 2)


STOPS = {  # where PyTorch stops at a record of zeros, of 9 or of NaN; some stop a GPU for good
    "a row of a table": lambda x, table: table[x[:, 0].long()],
    "a column of a table": lambda x, table: table[:, x[:, 0].long()].T,
    "an entry of a table": lambda x, table: table[x[:, 0].long(), x[:, 1].long()][:, None] + x,
    "take": lambda x, table: torch.take(table, 3 * x.long()),
    "scatter": lambda x, _: torch.zeros(len(x), 4).scatter(1, x[:, :1].long(), 1.0),
    "scatter_add": lambda x, _: torch.zeros(len(x), 4).scatter_add(1, x[:, :1].long(), x[:, :1]),
    "cholesky": lambda x, _: torch.linalg.cholesky(square(x)),
    "inverse": lambda x, _: torch.linalg.inv(square(x)),
    "solve": lambda x, table: torch.linalg.solve(square(x), table[:2, :2]),
    "chances": lambda x, _: x,
}


@pytest.mark.parametrize("bad", [0.0, 9.0, math.nan, "target"])
@pytest.mark.parametrize("name", STOPS)
def test_a_record_makes_no_more_work_than_another(name, bad, caplog):
    """What PyTorch stops at becomes NaN, in the same time: nothing is halved and tried again."""
    torch.manual_seed(0)
    model, count = Made(STOPS[name]), 9
    inputs = torch.tensor([1.0, 0.0, 0.0, 1.0]) + torch.rand(count, 4) / 8
    labels = (torch.arange(count) % 4 > 0).float()
    loss = lambda outputs, target: F.binary_cross_entropy(outputs.sigmoid(), target)  # noqa: E731
    given = {"example": (inputs[0], labels[0]), "padded": 24, "chunk": 8}
    total = clipped_sum(model, loss, inputs, labels, 1.0, **given)
    worse = torch.full((4,), 1.0 if bad == "target" else bad)
    inputs = torch.cat([inputs, worse[None]])
    labels = torch.cat([labels, torch.tensor([2.0 if bad == "target" else 1.0])])
    more = clipped_sum(model, loss, inputs, labels, 1.0, **given)
    assert "PyTorch stops" not in caplog.text
    assert np.abs(total.to_numpy()).max() > 0.1
    assert np.linalg.norm(more.to_numpy() - total.to_numpy()) < 1.0 + 1e-4
    if bad == "target" or math.isnan(bad):
        assert more.to_numpy() == pytest.approx(total.to_numpy(), abs=1e-4)


# Random slots


def test_every_arrangement_of_slots_is_equally_likely():
    trials, slots = 20_000, 5
    found = np.array([draw_slots(2, slots) for _ in range(trials)])
    assert (found[:, 0] != found[:, 1]).all()
    counts = np.bincount(found[:, 0] * slots + found[:, 1], minlength=slots**2)
    counts = counts[counts > 0]
    chance = 1 / (slots * (slots - 1))
    assert len(counts) == slots * (slots - 1)
    deviation = math.sqrt(trials * chance * (1 - chance))
    assert np.abs(counts - trials * chance).max() < 5.5 * deviation


class Attention(nn.Module):
    """Weights of a hostile server: values alike, and a head that magnifies their differences."""

    def __init__(self, factor, width=7):
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(width, width) for _ in range(3))
        self.head = nn.Linear(width, 2)
        with torch.no_grad():
            self.value.weight[:] = self.value.weight[0].clone()
            self.value.bias[:] = 0.3
            self.head.weight.zero_()
            self.head.bias.zero_()
            self.head.weight[0, 0], self.head.weight[0, -1] = factor, -factor

    def forward(self, x):
        mixed = (self.query(x) @ self.key(x).transpose(-1, -2)).softmax(-1) @ self.value(x)
        return self.head(mixed.mean(1))


@pytest.mark.parametrize(("is_scored", "factor"), [(False, 2.0**30), (True, 2.0**58)])
def test_a_hostile_attention_moves_nobody_else(monkeypatch, is_scored, factor):
    torch.manual_seed(0)
    model, count = Attention(factor), 41
    inputs, labels = torch.randn(count, 9, 7), torch.randint(2, (count,))
    slots = draw_slots(count, 48)

    def total(some, slots):
        monkeypatch.setattr(MODULE, "draw_slots", lambda count, _: slots)
        given, options = (inputs[some], labels[some]), {"chunk": 16, "padded": 48}
        if is_scored:
            found = scored_sum(model, *given, Scoring(), **options)
        else:
            found = clipped_sum(model, F.cross_entropy, *given, 1.0, **options)
        return found.values.astype(float) / UNITS

    everybody, moved, in_order = np.arange(count), [], []
    for gone in range(0, count, 8):
        rest = np.delete(everybody, gone)
        whole = total(everybody, slots)
        moved.append(np.linalg.norm(whole - total(rest, np.delete(slots, gone))))
        in_order.append(np.linalg.norm(total(everybody, everybody) - total(rest, everybody[:-1])))
    assert max(moved) <= 1.0
    assert max(in_order) > 1.1  # what random slots are there for


# Models with a state


class CallCounter(nn.Linear):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * self.calls


class HostNoise(nn.Linear):
    def forward(self, x):
        return super().forward(x) + float(np.random.default_rng().normal())


class Memory(nn.Linear):
    last = 0.0

    def forward(self, x):
        self.last, before = float(self.weight.detach().sum()) + 1.0, self.last
        return super().forward(x) + before


class Counted(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


def hooked():
    layer, seen = nn.Linear(5, 5), []
    layer.register_forward_hook(lambda *given: (seen.append(1), given[2] * len(seen))[1])
    return layer


STATES = {
    "spectral_norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(5, 5)),
    "old spectral_norm": lambda: nn.utils.spectral_norm(nn.Linear(5, 5)),
    "call counter": lambda: CallCounter(5, 5),
    "counter in a buffer": lambda: Counted(5, 5),
    "noise of NumPy": lambda: HostNoise(5, 5),
    "memory": lambda: Memory(5, 5),
    "hook": hooked,
}


@pytest.mark.filterwarnings("ignore:.*spectral_norm:FutureWarning")
@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize("name", STATES)
def test_models_with_a_state_are_refused(name, is_frozen):
    model = nn.Sequential(STATES[name]().requires_grad_(not is_frozen), nn.Tanh(), nn.Linear(5, 3))
    _, inputs, labels = case(False)
    with pytest.raises(ValueError, match="model"):
        clipped_sum(model, F.cross_entropy, inputs, labels, 1.0)
    if name != "counter in a buffer":  # of a copy in float64, and no row depends on it
        with pytest.raises(ValueError, match="model"):
            scored_sum(model, inputs, labels, CLASSES)


class Late(nn.Linear):
    """Changes after as many calls as no check makes."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * (2.0 if self.calls > 4 else 1.0)


def test_every_chunk_begins_with_the_model_as_it_was(monkeypatch):
    _, inputs, labels = case(False, 80)
    torch.manual_seed(0)
    model, plain = Late(5, 3), nn.Linear(5, 3)
    plain.load_state_dict(model.state_dict())
    monkeypatch.setattr(MODULE, "draw_slots", lambda count, _: np.arange(count))
    late, wanted = (
        clipped_sum(nn.Sequential(nn.Tanh(), one), F.cross_entropy, inputs, labels, 1.0, chunk=8)
        for one in (model, plain)
    )
    assert (late.values == wanted.values).all()


# Models that people have


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.body = kind(3, 5, batch_first=True, **options)
        self.head = nn.Linear(10 if options.get("bidirectional") else 5, 1)

    def forward(self, x):
        return self.head(self.body(x)[0][:, -1])


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}])
@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_recurrent_layers_with_one_logit(kind, options, dtype):
    torch.manual_seed(0)
    model, inputs = Recurrent(kind, **options), torch.randn(9, 4, 3)
    labels = torch.tensor([0, 1, 1, 0, 1, 0, 0, 1, 1]).to(dtype)
    loss = nn.BCEWithLogitsLoss()
    assert check_model(model, loss, (inputs[0], labels[0]))
    total = clipped_sum(model, loss, inputs, labels, 0.1)
    wanted, outputs = 0.0, model(inputs)[:, 0]
    for output, label in zip(outputs, labels.float(), strict=True):
        gradient = torch.autograd.grad(loss(output, label), model.parameters(), retain_graph=True)
        gradient = torch.cat([one.flatten() for one in gradient])
        wanted = wanted + gradient * min(1.0, 0.1 / float(gradient.norm()))
    assert total.to_numpy() == pytest.approx(wanted.numpy(), abs=9e-6)
    scoring = Scoring()
    rows = scoring.rows(outputs.double().sigmoid().detach().numpy(), labels.double().numpy())
    found = scored_sum(model, inputs, labels, scoring).to_numpy()
    assert found == pytest.approx(rows.sum(axis=0), abs=1e-3)


@pytest.mark.parametrize(
    ("example", "told"),
    [
        ((torch.zeros(4), torch.tensor(0)), "shapes"),
        ((torch.zeros(5).double(), torch.tensor(0)), "float64"),
        ((torch.zeros(5), torch.tensor(0.0)), "float32"),
        (torch.zeros(5), "example"),
        (None, "example"),
    ],
)
def test_wrong_widths_and_dtypes_are_told_as_such(example, told):
    with pytest.raises(ValueError, match=told) as caught:
        check_model(nn.Linear(5, 3), F.cross_entropy, example)
    assert "random" not in str(caught.value)


def test_booleans_are_read_alike_next_to_text():
    """A library that reads files makes a whole column text where one value is."""
    example = torch.zeros(1), torch.tensor(0.0)
    found = [
        read_records(np.zeros((2, 1)), labels[:2], example)
        for labels in ([True, False], np.array(["True", "False", "unknown"], dtype=object))
    ]
    assert [one.parts[1].tolist() for one in found] == [[1.0, 0.0]] * 2
    assert all(one.is_good.all() for one in found)
