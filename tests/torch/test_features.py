"""Features of a frozen body: each of its own record alone."""

import numpy as np
import pytest
import torch
from torch import nn

from jopeq.torch.features import FrozenBody
from jopeq.torch.records import read_records

EXAMPLE = torch.zeros(3, 8, 8), torch.tensor(0)


def body():
    torch.manual_seed(1)
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout()]
    return nn.Sequential(*layers, nn.Linear(288, 5))


def test_a_row_is_a_function_of_its_own_record():
    images, labels = torch.rand(20, 3, 8, 8), torch.arange(20)
    module = body()
    frozen = FrozenBody(module, EXAMPLE)
    whole = frozen.features(read_records(images, labels, EXAMPLE), 0)
    alone = [
        frozen.features(read_records(images[[at]], labels[[at]], EXAMPLE), 3) for at in range(20)
    ]
    np.testing.assert_array_equal(whole, np.concatenate(alone))
    assert whole.shape == (20, frozen.size)
    assert module.training  # it is as it was
    with torch.no_grad():
        np.testing.assert_allclose(whole, module.eval()(images), rtol=1e-5, atol=1e-6)


def test_bad_records_are_no_rows():
    images = [*torch.rand(3, 3, 8, 8), torch.rand(2, 2)]
    read = read_records(images, [1, None, 3, 4], EXAMPLE)
    found = FrozenBody(body(), EXAMPLE).features(read, 0)
    assert np.isnan(found).all(axis=1).tolist() == [False, True, False, True]


class Shaky(nn.Module):
    def __init__(self, size=4):
        super().__init__()
        self.seen, self.size = 0.0, size

    def forward(self, rows):
        self.seen = 0.9 * self.seen + float(rows.sum())
        return rows.flatten(1)[:, : self.size] + self.seen


def noisy():
    module = nn.Flatten()
    module.register_forward_hook(lambda *given: given[2] + torch.randn(1))
    return module


@pytest.mark.parametrize(
    ("module", "match"),
    [
        (noisy(), "at random"),
        (Shaky(), "remembers"),
        (nn.Linear(7, 3), "gives no features"),
        (nn.LSTM(8, 2), "gives no features"),
    ],
)
def test_bodies_that_are_refused(module, match):
    with pytest.raises(ValueError, match=match):
        FrozenBody(module, EXAMPLE)
