"""The guard: any app behind the node's own bounds."""

import pytest
from flwr.clientapp import ClientApp
from torch.nn.functional import cross_entropy

import jopeq
from jopeq.flower import RoundFailedError, record_client
from jopeq.flower.guard import guard_app, start_guarded
from tests.flower.test_records import NODES, TERMS, Hospitals, X, Y, fail, net

LIMITS = {"jopeq-max-epsilon": 8.0, "jopeq-max-delta": 1e-5}


def test_the_guard_wraps_any_app(flower, tmp_path, monkeypatch):
    totals, encode = [], jopeq.RecordSum.encode
    monkeypatch.setattr(
        jopeq.RecordSum,
        "encode",
        lambda self, total, **k: (totals.append(total.to_numpy()), encode(self, total, **k))[1],
    )
    hospitals = Hospitals(flower, tmp_path, node=LIMITS)
    bold = jopeq.RecordSum(**{**TERMS, "sampling": 1.0})  # draws more than the terms say
    given = {"model": net, "loss": cross_entropy, "records": lambda _: (X, Y)}
    inner = dict(hospitals.apps)
    inner[22] = record_client(bold, **given)
    inner[33] = ClientApp()  # without mod and without functions
    for n, app in inner.items():
        hospitals.apps[n] = guard_app(lambda app=app: app)
    hospitals.apps[44] = guard_app(lambda: fail(ImportError))
    strategy = hospitals.strategy()
    strategy.start(hospitals.grid, num_rounds=1)
    assert len(strategy.reports[0].entries) == 5
    assert sorted(bool(total.any()) for total in totals) == [False, False, False, True, True]
    assert set(hospitals.shares().values()) == {1}


@pytest.mark.parametrize("change", [{"colluding": 0}, {"moved": 0.0}, {}])
def test_the_guard_takes_no_bold_terms(flower, tmp_path, change):
    """Nor any at all where the node's configuration has no bounds."""
    scheme = jopeq.RecordSum(**{**TERMS, **change})
    hospitals = Hospitals(flower, tmp_path, scheme, node=LIMITS if change else {})
    for n in NODES:
        hospitals.apps[n] = guard_app(lambda: fail(AssertionError))
    strategy = hospitals.strategy(scheme)
    with pytest.raises(RoundFailedError):
        strategy.start(hospitals.grid, num_rounds=1)
    assert {failure.code for failure in strategy.reports[0].failed} == {"settings"}
    assert set(hospitals.shares().values()) == {0}


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["sh", "-c", "true"],
        ["flower-supernode", "--isolation", "process"],
        ["flower-supernode", "--isolation=process"],
        ["flower-supernode", "--allow-runtime-dependency-installation"],
    ],
)
def test_the_guard_starts_supernodes_alone(command):
    with pytest.raises(ValueError, match="command"):
        start_guarded(command)
