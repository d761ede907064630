"""The explorer in a browser: its numbers are the library's, and everybody can use it."""

import json
import math
from dataclasses import asdict
from importlib import resources
from itertools import product

import numpy as np
import pytest

from jopeq.analysis.learning import SIGNAL, judge
from jopeq.entries.spread import best_spread
from jopeq_lab.explorer import Refusal, Setting, answer, page
from jopeq_lab.explorer.grid import (
    AXES,
    PER_ENTRY,
    RECORD_STOPS,
    TOLERANCE,
    entry_scheme,
)
from jopeq_lab.explorer.lines import lines

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


SPOKEN = {
    "learns": "It learns.",
    "loses some": "It learns, and loses some accuracy.",
    "loses much": "It learns, and loses much accuracy.",
    "noise": "Nothing reliable is learnt.",
}


def test_every_stop_of_patients_and_hospitals_says_what_the_table_says(explorer):
    """All 1,125: verdict by the learning rule, bytes, and lines with the table's sampling."""
    text = (resources.files("jopeq_lab.explorer") / "data" / "grid.json").read_text("utf-8")
    table = json.loads(text)["records"]
    axes = {**AXES, **RECORD_STOPS}
    places = list(product(*(axes[name] for name in table["by"])))
    assert len(places) == len(table["error"]) == len(table["bits"]) == len(table["sampling"])
    settings = [
        Setting(scheme="records", **dict(zip(table["by"], place, strict=True))) for place in places
    ]
    found = explorer.run(
        f"{json.dumps(list(map(asdict, settings)))}.map(setting => {{ explorer.put(setting); "
        "return { ...explorer.state(), lines: explorer.lines(), "
        "said: document.querySelector('#learning .verdict').textContent }; })"
    )
    codes = set()
    for place, (setting, shown) in enumerate(zip(settings, found, strict=True)):
        assert shown["setting"] == asdict(setting)
        error = table["error"][place]
        if isinstance(error, str):
            assert shown["answer"] == {"refused": error}
            continue
        verdict = judge(error / SIGNAL**2, setting.rounds)
        assert shown["said"] == SPOKEN[verdict.code], setting
        assert shown["answer"]["averaged"] == pytest.approx(verdict.averaged, rel=1e-12)
        assert shown["answer"]["bytes_a_round"] >= table["bits"][place] / 8
        assert shown["answer"]["epsilon_person"] == setting.epsilon
        assert shown["lines"] == lines(setting, sampling=table["sampling"][place]), setting
        codes.add(verdict.code)
    assert codes == SPOKEN.keys()


def test_sliders_step_through_all_stops_whatever_is_protected(explorer):
    """By the events of a hand on the controls."""
    found = explorer.run(
        """(() => {
          const rows = [];
          explorer.put({ ...explorer.state().setting, scheme: "sum", clients: 1000000 });
          for (const trust of document.querySelectorAll("input[name=trust]")) {
            trust.click();
            for (const slider of document.querySelectorAll("input[type=range]:enabled")) {
              const before = slider.value;
              for (let stop = 0; stop <= Number(slider.max); stop++) {
                slider.value = stop;
                slider.dispatchEvent(new Event("input", { bubbles: true }));
                const { setting, answer } = explorer.state();
                const said = [...document.querySelectorAll(".card p")].map((p) => p.textContent);
                rows.push({ trust: trust.value, name: slider.id, value: setting[slider.id],
                            isRefused: "refused" in answer, code: explorer.lines().cli, said });
              }
              slider.value = before;
              slider.dispatchEvent(new Event("input", { bubbles: true }));
            }
          }
          return rows;
        })()"""
    )
    stepped = {}
    for row in found:
        stepped.setdefault((row["trust"], row["name"]), []).append(row["value"])
        assert all(row["said"]), row
        assert not any(word in " ".join(row["said"]) for word in ("undefined", "NaN", "{")), row
        assert bool(row["code"]) != row["isRefused"], row
    for (trust, name), values in stepped.items():
        axes = {**AXES, **RECORD_STOPS} if trust == "records" else AXES
        assert values == list(axes[name]), (trust, name)
    assert {trust for trust, _ in stepped} == {"records", "sum", "sphere", "entry"}
    assert explorer.heard() == {"complaints": [], "outside": []}
