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
# what a control without a label, or a picture without words, would leave here
WITHOUT_WORDS = """[
    ...[...document.querySelectorAll('input, select')].filter(one => !one.labels.length),
    ...[...document.querySelectorAll('input[type=range]')].filter(
        one => !one.getAttribute('aria-valuetext')),
    ...[...document.querySelectorAll('[role=img]')].filter(one => !one.getAttribute('aria-label')),
    ...[...document.querySelectorAll('img')].filter(one => !one.alt),
].map(one => one.outerHTML)"""


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


@pytest.mark.parametrize(
    ("setting", "place", "words"),
    [
        (
            Setting(scheme="sphere", clients=10_000, rounds=1),
            "#traffic .text",
            "1 byte from each client in a round, 10 kB from all clients in all rounds (float32: ",
        ),
        (
            Setting(scheme="jopeq", rate=1.0, rounds=10),
            "#privacy .text",
            "(asked for: 4), which adds up to 79,500 for an update and 795,000 for a client in 10 ",
        ),
        (Setting(scheme="jopeq", epsilon=8.0, rate=1.0), "#privacy .verdict", "No proof"),
        (
            Setting(scheme="sum", epsilon=1.0, rounds=1),
            "#privacy .verdict",
            "Strong, for a client.",
        ),
        (Setting(scheme="sum", clients=10), "#learning .verdict", "Nothing reliable"),
        (Setting(scheme="sum", clients=10_000), "#learning .verdict", "It learns."),
        (Setting(scheme="sum", clients=300_000), "#privacy .text", "at most 100,000 clients"),
        (
            Setting(scheme="response", epsilon=4.0),
            "#attack-text",
            "Nearest measured setting: response, ε = 4 per entry, 8 bits.",
        ),
        (Setting(scheme="sphere", rounds=1), "#attack-text", "recovered 0 of 4 images"),
        (Setting(scheme="sum"), "#attack-text", "No attack on secure sums was measured."),
    ],
    ids=lambda given: given.scheme if isinstance(given, Setting) else "",
)
def test_words(explorer, setting, place, words):
    explorer.run(f"explorer.put({json.dumps(asdict(setting))})")
    assert words in explorer.run(f"document.querySelector({place!r}).textContent")


def test_charts_follow_the_controls(explorer):
    """Moved as a person moves them: the value changes, and an input event comes."""
    explorer.run(f"explorer.put({json.dumps(asdict(Setting(scheme='sphere')))})")
    ring = "document.querySelector('#learn .layer_5_marks path')?.getAttribute('transform')"
    assert explorer.until(f"{ring} !== undefined", seconds=60)
    before = explorer.run(ring)
    explorer.run(
        "(() => { const slider = document.getElementById('clients'); slider.focus(); "
        "slider.value = 9; slider.dispatchEvent(new Event('input', { bubbles: true })); })()"
    )
    assert explorer.until(f"{ring} !== {json.dumps(before)}", seconds=60)
    assert explorer.run("document.activeElement.id") == "clients"
    assert "clients=300000" in explorer.run("location.hash")
    assert explorer.run("document.querySelectorAll('.chart svg').length") == 3
    assert explorer.heard() == {"complaints": [], "outside": []}


def test_everything_has_words_for_those_who_listen(explorer):
    for scheme in SCHEMES:
        explorer.run(f"explorer.put({json.dumps(asdict(Setting(scheme=scheme)))})")
        assert explorer.run(WITHOUT_WORDS) == []
    assert explorer.run("document.querySelector('#summary').getAttribute('aria-live')") == "polite"
    assert explorer.run("document.documentElement.lang") == "en"


@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_is_wider_than_the_window(explorer, tmp_path, width):
    for _ in range(2):
        explorer.shoot(tmp_path / "page.png", width, 900)
    for scheme in SCHEMES:
        explorer.run(f"explorer.put({json.dumps(asdict(Setting(scheme=scheme)))})")
        assert explorer.until("document.documentElement.scrollWidth <= innerWidth", seconds=60), (
            scheme
        )
