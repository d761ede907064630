import numpy as np
import pytest
import torch

import jopeq
from jopeq.analysis.exact import INPUTS, log_channel
from jopeq.errors import PayloadError
from jopeq.registry import SCHEMES
from jopeq.wire.payload import open_payload
from jopeq_lab.attacks.likelihood import _log_laplace_between, likelihood
from jopeq_lab.attacks.observation import observe


def scheme_named(name):
    fields, given = SCHEMES[name].__dataclass_fields__, {"epsilon": 3.0, "rate": 3.0}
    given = {key: value for key, value in given.items() if key in fields}
    return jopeq.scheme(name, **given)


def gradient(size=400):
    return np.random.default_rng(0).normal(0, 0.02, size)


@pytest.mark.parametrize(
    ("coder", "kind"),
    [
        *((scheme_named(name), None) for name in SCHEMES),
        (jopeq.JoPEQ(epsilon=3.0, rate=2.0, lattice="A2"), "squares"),
        (jopeq.SubtractiveDither(rate=4.0, clip=0.1), "cells"),
        (jopeq.JoPEQ(epsilon=100.0, rate=4.0), "cells"),
        (jopeq.JoPEQ(epsilon=3.0, rate=3.0), "laplace-cells"),
    ],
    ids=lambda one: getattr(one, "spec", one),
)
def test_every_scheme_has_one_that_prefers_the_truth(coder, kind):
    truth = torch.from_numpy(gradient())[None]
    said = likelihood([coder], [coder.encode(truth[0].numpy())])
    assert kind in (None, said.kind)
    assert said(truth).isfinite().all()
    for law in (said, said.as_if_gaussian()):
        assert law is None or law(truth) < law(-truth)
    point = (truth + 1e-3).requires_grad_()
    (slope,) = torch.autograd.grad(said(point).sum(), point)
    assert slope.isfinite().all()
    assert slope.abs().max() > 0


def test_a_report_is_read_with_its_round():
    scheme = jopeq.Sphere(epsilon=20.0, clip=1.0)
    truth = torch.from_numpy(gradient())[None]
    seen = observe(scheme, truth, None)
    assert list(map(len, seen.payloads)) == [3]
    said = seen.likelihood()
    assert said.kind == "squares"
    assert said(truth) < said(-truth)
    with pytest.raises(PayloadError, match="no report"):
        likelihood(seen.schemes, [b"more than a report"])


@pytest.mark.parametrize("rate", [1.0, 4.0, 8.0])
def test_without_noise_the_truth_lies_in_its_cells(rate):
    """Overloaded entries too: the outermost cells have no outer end."""
    coder = jopeq.scheme("sdq", rate=rate)
    truth = gradient()
    truth[:3] = (0.5, -0.7, 0.3)  # far outside of the ball
    said = likelihood([coder], [coder.encode(truth)])
    assert said.kind == "cells"
    unit = float(said.unit[0, 0])
    assert np.abs(truth / unit).max() > 1.0
    assert said(torch.from_numpy(truth)[None]).item() == pytest.approx(0.0, abs=1e-9)
    step = coder.cells.step
    moved = torch.from_numpy(truth + 1.1 * step * unit)[None]
    assert said(moved).item() > 0.5


@pytest.mark.parametrize("name", ["jopeq", "laplace+sdq"])
def test_cells_have_the_probabilities_of_the_exact_channel(name):
    coder = jopeq.scheme(name, epsilon=3.0, rate=2.0, clip=1.0)
    entries = INPUTS[np.arange(99) % len(INPUTS)]
    payload = coder.encode(entries)
    said = likelihood([coder], [payload])
    assert said.kind == "laplace-cells"
    places = torch.from_numpy(entries)
    nats = -_log_laplace_between(
        (said.low[0] - places) / said.width[0], (said.high[0] - places) / said.width[0]
    )
    header, body = open_payload(payload, None)
    letters = coder.codec.coder.decode(body, 0, len(entries))
    dithers = (
        coder.codec.dither(0, len(entries), header.shared_stream(None))[:, 0] / coder.cells.step
    )
    exact = [
        -log_channel(coder, float(dither))[index % len(INPUTS), letter]
        for index, (dither, letter) in enumerate(zip(dithers, letters, strict=True))
    ]
    assert nats.numpy() == pytest.approx(np.array(exact), rel=1e-4)  # decoded as float32
    assert len(set(letters.tolist())) > 2


def test_schemes_of_one_kind_can_be_taken_together():
    coders = [jopeq.scheme("jopeq", epsilon=epsilon, rate=8.0) for epsilon in (2.0, 5.0)]
    payloads = [coder.encode(gradient()) for coder in coders]
    together = likelihood(coders, payloads)
    rows = torch.from_numpy(gradient())[None].repeat(2, 1)
    for row in range(2):
        alone = likelihood([coders[row]], [payloads[row]])
        assert torch.allclose(alone(rows[:1]), together(rows)[row : row + 1])
        assert torch.allclose(together.select(torch.tensor([row]))(rows[:1]), alone(rows[:1]))
    other = jopeq.scheme("sdq", rate=2.0)
    with pytest.raises(ValueError, match="different kinds"):
        likelihood([coders[0], other], [payloads[0], other.encode(gradient())])


def test_what_tells_nothing_or_is_centred_is_refused():
    for name in ("none", "sdq", "jopeq"):
        coder = scheme_named(name)
        with pytest.raises(PayloadError, match="nothing to attack"):
            likelihood([coder], [coder.encode(np.zeros(10))])
    coder = jopeq.scheme("sdq", rate=2.0, center=True)
    with pytest.raises(ValueError, match="center"):
        likelihood([coder], [coder.encode(gradient() + 0.1)])
