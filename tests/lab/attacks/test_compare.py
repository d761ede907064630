"""Schemes against methods: outcomes, the file they are kept in, and the picture."""

import pytest
import torch

import jopeq
from jopeq_lab.attacks import AttackConfig, GradientMap
from jopeq_lab.attacks import compare as module
from jopeq_lab.attacks.compare import compare
from jopeq_lab.training.models import build

SHAPE = (1, 8, 8)
RAW = {"raw": jopeq.scheme("none")}
SCHEMES = {**RAW, "coarse": jopeq.scheme("sdq", rate=2.0)}
METHODS = ("label", "adaptive")
CONFIG = AttackConfig(iterations=1)


@pytest.fixture
def setting():
    found = GradientMap(build("lenet", SHAPE, 10, seed=0), SHAPE)
    images = torch.rand(2, *SHAPE, generator=torch.Generator().manual_seed(0))
    return found, images, torch.tensor([1, 7])


def test_what_is_done_is_not_done_again(setting, tmp_path, monkeypatch):
    keep = tmp_path / "kept.npz"
    first = compare(*setting, SCHEMES, ("label",), CONFIG, keep=keep)
    attacked = []
    real = module._attack

    def watched(gradient_map, images, labels, gradients, schemes, config, progress):
        attacked.extend((config.method, label) for label in schemes)
        return real(gradient_map, images, labels, gradients, schemes, config, progress)

    monkeypatch.setattr(module, "_attack", watched)
    more = {**SCHEMES, "fine": jopeq.scheme("sdq", rate=8.0)}
    again = compare(*setting, more, METHODS, CONFIG, keep=keep, resume=True)
    assert attacked == [("label", "fine"), *(("adaptive", label) for label in more)]
    assert torch.equal(again[0].images, first[0].images)
    assert again[0].ssim == first[0].ssim
    attacked.clear()
    compare(*setting, SCHEMES, ("label",), CONFIG, keep=keep)  # without resume all is new
    assert len(attacked) == 2
