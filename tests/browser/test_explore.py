"""The explorer in a browser: its numbers are the library's, and everybody can use it."""

import json
import math
from dataclasses import asdict

import numpy as np
import pytest

from jopeq.entries.spread import best_spread
from jopeq.lab.explorer import Refusal, Setting, answer, page
from jopeq.lab.explorer.grid import AXES, PER_ENTRY, SCHEMES, TOLERANCE, entry_scheme
from jopeq.lab.explorer.lines import lines

COUNT = 200


@pytest.fixture(scope="module")
def explorer(browser, tmp_path_factory):
    path = tmp_path_factory.mktemp("explorer") / "page.html"
    path.write_text(page(), encoding="utf-8")
    assert browser.open(path.as_uri()) == {"loaded": True, "complaints": [], "outside": []}
    return browser


def _settings():
    """Whom to trust in turn, every other control at random; the three per-entry schemes in turn."""
    draws = np.random.default_rng(2026)
    one, two, *others = PER_ENTRY
    kinds = ("sphere", "sum", one, "sphere", "sum", two, "sum", *others)
    for number in range(COUNT):
        picked = {name: values[draws.integers(len(values))] for name, values in AXES.items()}
        is_once = bool(draws.integers(2))
        yield Setting(scheme=kinds[number % len(kinds)], is_once=is_once, **picked)


def _answer(setting):
    try:
        return asdict(answer(setting))
    except Refusal as refusal:
        return {"refused": refusal.reason}


def test_the_page_says_what_the_library_says(explorer):
    """Through the controls, at 200 random settings; five digits, and the lines letter by letter."""
    settings = list(_settings())
    found = explorer.run(
        f"{json.dumps(list(map(asdict, settings)))}.map(setting => {{ explorer.put(setting); "
        "return { ...explorer.state(), lines: explorer.lines() }; })"
    )
    refused = 0
    for setting, shown in zip(settings, found, strict=True):
        assert shown["setting"] == asdict(setting)
        expected = _answer(setting)
        refused += "refused" in expected
        assert shown["answer"].keys() - {"spread"} == expected.keys(), setting
        if "refused" in expected:
            assert shown["answer"] == expected
            continue
        for name, value in expected.items():
            on_page = math.inf if shown["answer"][name] is None else shown["answer"][name]
            assert on_page == pytest.approx(value, rel=TOLERANCE, abs=TOLERANCE), (name, setting)
        spread = None
        if setting.scheme in PER_ENTRY:
            built = entry_scheme(setting.scheme, setting.epsilon, setting.rate)
            spread = round(best_spread(built, setting.clients), 2)
        assert shown["lines"] == lines(setting, spread), setting
    assert 0 < refused < COUNT / 2


@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_is_wider_than_the_window(explorer, tmp_path, width):
    for _ in range(2):
        explorer.shoot(tmp_path / "page.png", width, 900)
    for scheme in SCHEMES:
        explorer.run(f"explorer.put({json.dumps(asdict(Setting(scheme=scheme)))})")
        assert explorer.until("document.documentElement.scrollWidth <= innerWidth", seconds=60), (
            scheme
        )
