"""Schemes against methods: an outcome for each."""

import torch

import jopeq
from jopeq_lab.attacks import AttackConfig, GradientMap
from jopeq_lab.attacks.compare import compare
from jopeq_lab.training.models import build

SHAPE = (1, 8, 8)


def test_every_scheme_is_attacked_by_every_method_as_if_alone():
    model = build("lenet", SHAPE, 10, seed=0)
    seen_through = GradientMap(model, SHAPE, dtype=torch.float64)
    images = torch.rand(2, *SHAPE, generator=torch.Generator().manual_seed(0))
    schemes = {"raw": jopeq.scheme("none"), "coarse": jopeq.scheme("sdq", rate=2.0)}
    given = seen_through, images, torch.tensor([1, 7])
    methods, told = ("label", "adaptive"), []
    found = compare(
        *given, schemes, methods, AttackConfig(iterations=2), lambda *news: told.append(news)
    )
    places = [(label, method) for label in schemes for method in methods]
    assert [(one.label, one.method) for one in found] == places
    assert [one.spec for one in found[::2]] == [scheme.spec for scheme in schemes.values()]
    alone = compare(*given, {"raw": schemes["raw"]}, ("label",), AttackConfig(iterations=2))
    assert torch.allclose(alone[0].images, found[0].images, rtol=1e-4, atol=1e-5)
    assert {words for words, *_ in told} >= {"label: raw, coarse", "adaptive: coarse"}
    assert max(done for _, done, _ in told) <= 40
