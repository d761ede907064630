"""The health of a node, and what its ledger tells people of what was asked."""

import os
import time
from pathlib import Path

import pytest

from jopeq.analysis.ledger_report import ledger_report
from jopeq.circle import fingerprint
from jopeq.flower import RoundFailedError
from jopeq.flower.guard import check_health, guard_app
from jopeq.ledger import Ledger
from tests.flower.test_records import NODES, Hospitals

LIMITS = {"jopeq-max-epsilon": 8.0, "jopeq-max-delta": 1e-5}
APP = "7" * 64


@pytest.fixture
def hospitals(flower, tmp_path):
    """Five guarded nodes."""
    made = Hospitals(flower, tmp_path, node=LIMITS)
    inner = dict(made.apps)
    for n in NODES:
        made.apps[n] = guard_app(lambda n=n: inner[n], APP)
    return made


def test_a_node_is_well_until_something_is_not(hospitals, tmp_path):
    config = dict(hospitals.contexts[11].node_config)
    assert check_health(config) == []  # before its first message
    first = (tmp_path / "11.json").read_text()
    hospitals.strategy().start(hospitals.grid, num_rounds=1)
    assert check_health(config) == []
    ledger = Ledger.load(tmp_path / "11.json")
    (asked,) = [run.about for run in ledger.runs]
    assert asked["asked"] == "to train a model"
    assert asked["app"] == APP
    lines = hospitals.trusted.read_text().splitlines()
    told = fingerprint(bytes.fromhex(line[:64]) for line in lines)
    assert asked["asker"] == f"run 1 of the hospitals {told}"
    page = ledger_report(ledger)
    for part in ("to train a model, by sums of", f"app {APP}", f"answered by {asked['hospital']}"):
        assert part in page
    assert Ledger.from_json(ledger.to_json()).runs == ledger.runs

    later = time.time() + 3600.0
    os.utime(tmp_path / "11.json", (later, later))
    (said,) = check_health(config)
    assert "set the clock" in said
    (tmp_path / "11.json").write_text(first)
    (said,) = check_health(config)
    assert "put the newest one back" in said
    audit = tmp_path / "11.json.circle" / "audit.jsonl"
    audit.write_text('{"previous": "x", "serial": 1}\n')
    (said,) = check_health(config)
    assert "was changed" in said
    (tmp_path / "11.json").unlink()
    assert any("jopeq ledger init" in said for said in check_health(config))
    assert any("max-epsilon is -1" in said for said in check_health({"jopeq-max-epsilon": -1}))


def test_a_refusal_shows(hospitals):
    for n in NODES:
        hospitals.contexts[n].node_config["jopeq-max-epsilon"] = 0.5
    with pytest.raises(RoundFailedError):
        hospitals.strategy().start(hospitals.grid, num_rounds=1)
    (said,) = check_health(hospitals.contexts[11].node_config)
    assert "was refused: SumMod [limits]" in said
    assert Path(hospitals.folder / "11.json.last").stat().st_mode & 0o777 == 0o600
