"""What is registered from outside the package works wherever the library's own does."""

import dataclasses
import json
import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import pytest

import jopeq
from jopeq import registry
from jopeq.entries import additive
from jopeq.lattice import Lattice, lattices
from jopeq.noise import Laplace
from jopeq.schemes import Codec, Letters, Packing, Scheme


@dataclass(frozen=True, kw_only=True)
class Sign(Scheme):
    """One bit an entry: its sign after a private step, flipped with probability 1/(e^ε + 1)."""

    name: ClassVar[str] = "sign"

    epsilon: float

    guarantee = property(lambda self: jopeq.Guarantee(epsilon=self.epsilon, nominal=self.epsilon))
    distortion = property(lambda self: self.codec.size**2)
    bits_per_entry = 1.0

    @cached_property
    def codec(self):
        return SignCodec(self)


class SignCodec(Codec[Sign]):
    """P(1 | x) = ½ + x/(2s), s = (e^ε + 1)/(e^ε − 1), decoded ±s: unbiased on [−1, 1]."""

    has_dither: ClassVar[bool] = False
    coder = Packing(2)

    @property
    def size(self):
        return 1.0 / math.tanh(0.5 * self.scheme.epsilon)

    def to_letters(self, samples, first, shared, private):
        x = np.clip(samples[:, 0], -1.0, 1.0)
        words = private.words32(lane=0, start=first, count=len(x))
        chance = 0.5 + x / (2.0 * self.size)
        return Letters(words + 0.5 < chance * 2.0**32, int(np.count_nonzero(x != samples[:, 0])))

    def to_samples(self, letters, first, shared):
        return ((2.0 * letters - 1.0) * self.size)[:, None]


CUBIC = Lattice(generator=((-1.0, 1.0, 1.0), (1.0, -1.0, 1.0), (1.0, 1.0, -1.0)))


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    """What a test registers, no other test knows."""
    monkeypatch.setattr(registry, "SCHEMES", dict(registry.SCHEMES))
    monkeypatch.setattr(lattices, "_KNOWN", dict(lattices._KNOWN))
    monkeypatch.setattr(additive, "_NAMED", dict(additive._NAMED))


def test_a_scheme_goes_through_files_means_audits_and_ledgers(tmp_path):
    with pytest.raises(ValueError, match="scheme must be one of"):
        jopeq.scheme_from_spec('["sign",{"epsilon":2.0}]')
    assert jopeq.register(Sign) is Sign
    scheme = jopeq.scheme("sign", epsilon=2, clip=0.5)
    assert jopeq.scheme_from_spec(scheme.spec) == scheme
    update = np.full(40_000, 0.2, np.float32)
    file = tmp_path / "update"
    file.write_bytes(scheme.encode(update))
    assert 8 * file.stat().st_size < len(update) + 800
    opened = scheme.open(file.read_bytes())
    assert opened.header.scheme == scheme.spec
    found = scheme.decode(file.read_bytes())
    sigma = 0.5 * scheme.codec.size / math.sqrt(len(update))
    assert abs(found.mean() - 0.2) < 5 * sigma
    assert set(np.abs(found).tolist()) == {float(np.float32(0.5 * scheme.codec.size))}
    mean = jopeq.aggregate([scheme.encode(update) for _ in range(4)], scheme=scheme, like=update)
    assert abs(mean.mean() - 0.2) < 5 * sigma / 2
    report = jopeq.audit(scheme, draws=20_000)
    assert report.exact is None
    assert 1.5 < report.empirical.lower <= report.proven == 2.0
    assert report.is_consistent
    assert not jopeq.audit(Lying(epsilon=2.0), draws=20_000).is_consistent
    ledger = jopeq.Ledger.create(tmp_path / "ledger.json", budget=1e6)
    ledger.encode(scheme, update)
    ledger.save(tmp_path / "ledger.json")
    assert jopeq.Ledger.load(tmp_path / "ledger.json").spent.epsilon == pytest.approx(80_000.0)


@dataclass(frozen=True, kw_only=True)
class Lying(Sign):
    """It claims an ε of 0.5 and draws with that of 2."""

    name: ClassVar[str] = "lying"

    guarantee = property(lambda self: jopeq.Guarantee(epsilon=0.5, nominal=0.5))


def test_a_scheme_travels_through_flower():
    flower = pytest.importorskip("jopeq.flower")
    from flwr.serverapp.strategy import FedAvg

    from tests.flower.conftest import Federation, records, trainer

    jopeq.register(Sign)
    scheme = jopeq.scheme("sign", epsilon=8.0, clip=0.5)
    nodes = range(1, 4)
    app = trainer(lambda _, value: value + np.float32(0.25), [flower.PayloadMod(scheme)])
    strategy = flower.PayloadStrategy(FedAvg(), scheme=scheme)
    clients = Federation(strategy, dict.fromkeys(nodes, app))
    model, _ = clients.round(1, records({"w": np.zeros(20_000, np.float32)})["arrays"])
    assert abs(model["w"].numpy().mean() - 0.25) < 0.01


def test_an_attack_reads_a_scheme():
    torch = pytest.importorskip("torch")
    from jopeq_lab.attacks.likelihood import likelihood

    jopeq.register(Sign)
    scheme = jopeq.scheme("sign", epsilon=8.0, clip=1.0)
    truth = torch.full((1, 500), 0.5)
    said = likelihood([scheme], [scheme.encode(truth[0].numpy())])
    assert said.kind == "squares"
    assert said(truth) < said(-truth)


def test_a_lattice_and_a_law_are_names_in_specifications():
    jopeq.register(CUBIC, "cubic")
    jopeq.register(
        lambda epsilon, dimension: Laplace(4.0 * math.sqrt(dimension) / epsilon, dimension), "wide"
    )
    scheme = jopeq.scheme("jopeq", epsilon=4.0, rate=3.0, lattice="cubic", law="wide")
    assert json.loads(scheme.spec)[1] == {
        "epsilon": 4.0, "lattice": "cubic", "law": "wide", "rate": 3.0,
    }  # fmt: skip
    assert jopeq.scheme_from_spec(scheme.spec) == scheme
    assert 2.0 < scheme.guarantee.epsilon < 2.5  # twice the noise, less what the dither makes of it
    x = np.random.default_rng(0).normal(size=(100, 3))
    assert (Lattice("cubic", step=0.3).nearest(x) == CUBIC.scale(0.3).nearest(x)).all()
    seed = bytes(32)
    named, given = (jopeq.scheme("sdq", rate=2.0, lattice=which) for which in ("cubic", CUBIC))
    payloads = [one.encode(x[0].astype(np.float32), seed=seed) for one in (named, given)]
    assert named.decode(payloads[0]).tolist() == given.decode(payloads[1]).tolist()


@dataclass(frozen=True, kw_only=True)
class Half(Scheme):
    """It lacks what a scheme must define."""

    name: ClassVar[str] = "half"


class Plain(Sign):
    """No dataclass of its own."""

    name: ClassVar[str] = "plain"


@pytest.mark.parametrize(
    ("thing", "name", "message"),
    [
        (Half, None, "Half must define all of a Scheme and its own name"),
        (Plain, None, r"Plain must be a @dataclass\(frozen=True, kw_only=True\)"),
        (Sign, "other", "its own name"),
        (CUBIC, None, "name must be up to 40 small letters"),
        (CUBIC, "a b", "name must be up to 40 small letters"),
        (CUBIC, "E8", "name must be up to 40 small letters"),
        (CUBIC, "custom", "lattice 'custom' is known already"),
        (lambda epsilon, dimension: Laplace(1.0), "laplace", "law 'laplace' is known already"),
        (Laplace, "mine", "register takes a class of Scheme"),
        ("jopeq", "mine", "register takes a class of Scheme"),
        (dataclasses.make_dataclass("Jo", [], bases=(Sign,), frozen=True, kw_only=True,
                                    namespace={"name": "jopeq"}), None, "scheme 'jopeq' is known"),
    ],
)  # fmt: skip
def test_what_cannot_be_registered_is_refused(thing, name, message):
    with pytest.raises(ValueError, match=message):
        jopeq.register(thing, name)


def test_a_name_is_given_once():
    jopeq.register(Sign)
    jopeq.register(CUBIC, "cubic")
    with pytest.raises(ValueError, match="scheme 'sign' is known already"):
        jopeq.register(Sign)
    with pytest.raises(ValueError, match="lattice 'cubic' is known already"):
        jopeq.register(CUBIC, "cubic")
