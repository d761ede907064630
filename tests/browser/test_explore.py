"""The explorer in a browser: its numbers are the library's, and everybody can use it."""

import json
import math
from dataclasses import asdict

import numpy as np
import pytest

from jopeq.analysis.learning import CLEAR, DROWNED, NOISY
from jopeq.analysis.plan import plan
from jopeq.entries.spread import best_spread
from jopeq.models import Logistic, Number
from jopeq_lab.explorer import Refusal, Setting, answer, page
from jopeq_lab.explorer.grid import (
    AXES,
    PER_ENTRY,
    TOLERANCE,
    entry_scheme,
)
from jopeq_lab.explorer.lines import lines

COUNT = 63


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
    kinds = ("sphere", "clients", one, "sphere", "clients", two, "clients", *others)
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
    """Through the controls, at 63 random settings; five digits, and the lines letter by letter."""
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


NEAR = 0.1  # how far the page's arithmetic may be from the library's search
CLOSE = 0.03


def _typed(explorer, settings):
    return explorer.run(
        f"{json.dumps(list(map(asdict, settings)))}.map(setting => {{ explorer.put(setting); "
        "return { ...explorer.state(), lines: explorer.lines(), "
        "said: document.querySelector('#learning .verdict').textContent }; })"
    )


def _is_at_a_border(value, borders):
    return any(abs(math.log(value / border)) < NEAR for border in borders)


SPOKEN = {
    "learns": "It learns.",
    "loses some": "It learns, and loses some accuracy.",
    "loses much": "It learns, and loses much accuracy.",
    "noise": "Nothing reliable is learnt.",
}


def test_typed_patients_and_hospitals_get_what_plan_says(explorer):
    """At 48 places between and on those of the table: error, sampling, verdict, enough."""
    draws = np.random.default_rng(17)
    settings = [
        Setting(
            scheme="records", epsilon=epsilon, rounds=rounds,
            patients=int(10 ** draws.uniform(2.5, 6)), clients=int(draws.integers(3, 101)),
            entries=int(10 ** draws.uniform(1.5, 5)),
        )
        for epsilon, rounds in ((0.4, 12), (1.0, 30), (1.5, 80), (6.0, 200))
        for _ in range(12)
    ]  # fmt: skip
    codes, alike = set(), 0
    for setting, shown in zip(settings, _typed(explorer, settings), strict=True):
        assert shown["setting"] == asdict(setting)
        job = {"records": setting.patients, "clients": setting.clients}
        (row,) = plan(setting.epsilon, **job, dimension=setting.entries, rounds=setting.rounds)
        found, verdict = shown["answer"], row.verdict
        alike += found["sampling"] == row.scheme.sampling
        slack = 0.4 if found["sampling"] != row.scheme.sampling else NEAR
        assert found["averaged"] == pytest.approx(verdict.averaged, rel=slack), setting
        assert found["enough"] == pytest.approx(row.records_enough, rel=slack), setting
        if not _is_at_a_border(verdict.averaged, (CLEAR, NOISY, DROWNED)):
            assert shown["said"] == SPOKEN[verdict.code], setting
        assert shown["lines"] == lines(setting, sampling=found["sampling"]), setting
        codes.add(verdict.code)
    assert codes == SPOKEN.keys()
    assert alike > 0.9 * len(settings)


def test_typed_tables_get_what_the_model_plans(explorer):
    """Expected standard errors and verdicts of 24 regressions, and how many would be enough."""
    draws = np.random.default_rng(18)
    settings = [
        Setting(
            scheme="models", epsilon=epsilon, rounds=messages,
            patients=int(10 ** draws.uniform(2.5, 5)), clients=int(draws.integers(3, 40)),
            columns=int(draws.integers(1, 30)),
        )
        for epsilon, messages in ((0.6, 5), (1.0, 7), (3.0, 10))
        for _ in range(8)
    ]  # fmt: skip
    said = {"Enough patients.": "enough", "Noise: nothing is told.": "noise"}
    heard = set()

    def planned(setting, patients):
        columns = [Number(f"x{n}", 0, 1) for n in range(setting.columns)]
        threshold = max(3, setting.clients // 2 + 1)
        terms = {"clients": setting.clients, "threshold": threshold, "messages": setting.rounds}
        return Logistic("y", columns, epsilon=setting.epsilon, records=patients, **terms).plan()

    for setting, shown in zip(settings, _typed(explorer, settings), strict=True):
        found, expected = shown["answer"], planned(setting, setting.patients)
        assert found["standard_error"] == pytest.approx(expected.standard_error, rel=CLOSE)
        assert found["without_privacy"] == pytest.approx(expected.without_privacy, rel=1e-9)
        verdict = said.get(shown["said"], "wide")
        heard.add(verdict)
        ratio = setting.patients / found["enough"]
        if abs(math.log(ratio)) > NEAR and verdict != "noise":
            assert (verdict == "enough") == (expected.verdict == "enough patients"), setting
        assert planned(setting, math.ceil(1.1 * found["enough"])).verdict == "enough patients"
        fewer = planned(setting, math.floor(0.85 * found["enough"])).verdict
        assert fewer != "enough patients", setting
        assert shown["lines"] == lines(setting), setting
    assert heard == {"enough", "noise", "wide"}


def test_numbers_out_of_range_are_named_by_their_box(explorer):
    """Typed by hand, one after the other; a right number is right again."""
    explorer.run("explorer.put({ ...explorer.state().setting, scheme: 'records' })")
    found = explorer.run(
        """[["n-patients", "50", "40000"], ["n-clients", "2", "10"], ["n-epsilon", "", "1"],
            ["n-rounds", "3.5", "30"], ["n-entries", "20000000", "7850"]].map(([id, bad, good]) => {
          const box = document.getElementById(id), rows = [];
          for (const value of [bad, good]) {
            box.value = value;
            box.dispatchEvent(new Event("input", { bubbles: true }));
            rows.push([explorer.state().answer.refused ?? "",
                       document.querySelector("#privacy .text").textContent]);
          }
          return rows;
        })"""
    )
    for (refused, told), (again, fine) in found:
        assert refused == "range"
        assert " to " in told
        assert "NaN" not in told
        assert again == ""
        assert "NaN" not in fine


def test_sliders_step_through_all_stops_whatever_is_protected(explorer):
    """By the events of a hand on the controls."""
    found = explorer.run(
        """(() => {
          const rows = [];
          explorer.put({ ...explorer.state().setting, scheme: "clients", epsilon: 4, rounds: 10,
                         entries: 7850, clients: 1000000 });
          for (const trust of document.querySelectorAll("input[name=trust]")) {
            trust.click();
            const inside = "#sliders:not([hidden]) input[type=range]:enabled";
            for (const slider of document.querySelectorAll(inside)) {
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
        assert values == list(AXES[name]), (trust, name)
    assert {trust for trust, _ in stepped} == {"clients", "sphere", "entry"}
    assert explorer.heard() == {"complaints": [], "outside": []}
