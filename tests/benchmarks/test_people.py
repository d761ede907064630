"""The peers of ``sphere`` are those of their papers; docs/people.md has the kept numbers."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

ROOT = Path(__file__).parents[2]
KEPT = sorted((ROOT / "results").glob("people_bench*.json"))
COUNT = 400


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_peers_have_the_error_of_their_closed_form(place, epsilon, load):
    peer = load("people_peers").peers(epsilon)[place]
    rng = np.random.default_rng(place)
    x = rng.normal(size=300)
    x /= np.linalg.norm(x)
    drawn = [peer.report(x, rng) for _ in range(COUNT)]
    errors, lengths = [float(np.sum((one - x) ** 2)) for one in drawn], [one @ x for one in drawn]
    for values, expected in ((errors, peer.error(len(x))), (lengths, 1.0)):
        slack = 0.005 * expected  # of FastProjUnit, which is a little short
        sigma = float(np.std(values)) / math.sqrt(COUNT)
        assert abs(float(np.mean(values)) - expected) < 5.0 * sigma + slack


def test_the_page_and_its_figure_are_made(load, tmp_path):
    load("people_page").main(*map(str, KEPT), str(tmp_path))
    assert "sphere" in (tmp_path / "people.md").read_text()
    assert (tmp_path / "figures" / "people.svg").read_bytes().startswith(b"<?xml")


def test_the_numbers_come_from_the_results(load):
    results = json.loads((ROOT / "results" / "people_bench.json").read_text(encoding="utf-8"))
    page = load("people_page")
    before = page.people_page(results)
    results["errors"]["sphere"]["1000"]["8"]["ratio"] = 7.125
    sums, people = {"8": {"reports": 77, "clock": 1.0}}, {"9, 4": {"reports": 5, "clock": 2.0}}
    results["gpu"] = {"device": "a GPU", "sums": sums, "people": people}
    after = page.people_page(results)
    assert ("7.125" in before, "7.125" in after) == (False, True)
    assert "| sum, d = 100,000, ε = 8 | 77 | 1.000 | 77 |" in after
