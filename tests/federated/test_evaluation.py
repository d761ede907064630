import pytest
import torch
from torch import nn
from torch.nn import functional

from jopeq.federated.metrics import evaluate


def test_is_the_mean_over_all_samples_in_evaluation_mode():
    source = torch.Generator().manual_seed(0)
    inputs = torch.randn(501, 1, 2, 2, generator=source)
    labels = torch.randint(0, 3, (501,), generator=source)
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.9), nn.Linear(4, 3)).train()
    found = evaluate(model, inputs, labels)
    assert model.training
    with torch.no_grad():
        logits = model.eval()(inputs)
    assert found.loss == pytest.approx(float(functional.cross_entropy(logits, labels)), rel=1e-5)
    assert found.accuracy == float((logits.argmax(1) == labels).double().mean())
