import pytest
import torch
from torch import nn

from jopeq.attacks.gradients import GradientMap
from jopeq.attacks.labels import infer_labels
from jopeq.federated.models import build
from jopeq.federated.vector import ModelVector


def test_lenet_gives_every_label_away():
    found = GradientMap(build("lenet", (1, 12, 12), 10, 0), (1, 12, 12))
    labels = torch.arange(40) % 10
    images = torch.rand(40, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    gradients = found(images, found.one_hot(labels))
    assert torch.equal(infer_labels(gradients, found.layout, 10), labels)
    assert not torch.equal(infer_labels(-gradients, found.layout, 10), labels)


def test_the_bias_is_read_where_there_is_no_matrix():
    layout = ModelVector(nn.Conv2d(1, 4, 3))
    gradients = torch.zeros(2, layout.size)
    gradients[0, -1] = gradients[1, -3] = -1.0
    assert infer_labels(gradients, layout, 4).tolist() == [3, 1]


def test_a_model_without_either_is_refused():
    with pytest.raises(ValueError, match="no label can be inferred"):
        infer_labels(torch.zeros(1, 12), ModelVector(nn.Linear(3, 3)), classes=10)
