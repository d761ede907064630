"""The budget holds, for one thread or many, and survives a restart."""

import hashlib
import json
import math
import os
import pickle
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

import jopeq
from jopeq import kernels
from jopeq.entries.additive import LaplaceNoise
from jopeq.errors import BudgetExceededError, BudgetSpentError, LedgerError, UpdateError
from jopeq.ledger import Ledger
from jopeq.privacy import Guarantee
from jopeq.privacy.accounting import OPTIMAL, optimal_epsilon

SCHEME = jopeq.scheme("laplace", epsilon=2.0, clip=0.1)
UPDATE = np.linspace(-0.1, 0.1, 50, dtype=np.float32)  # costs ε = 100


@dataclass(frozen=True, kw_only=True)
class OtherPromise(LaplaceNoise):
    """A scheme that promises what the test wants."""

    name: ClassVar[str] = "laplace"
    promise: Guarantee
    guarantee = property(lambda self: self.promise)
    spec = property(lambda self: "promise")


SMALL = jopeq.scheme("laplace", epsilon=1.0, clip=1.0)


def refused(call, *given, kind=LedgerError):
    """The code of the error that the call raises."""
    with pytest.raises(kind) as caught:
        call(*given)
    return caught.value.code


def promising(**parameters):
    return OtherPromise(epsilon=1.0, clip=0.1, promise=Guarantee(**parameters))


def test_it_refuses_once_spent(monkeypatch):
    ledger = Ledger(budget=250.0)
    state = {"a": UPDATE[:20], "b": UPDATE[20:].reshape(5, 6), "steps": np.array(3)}
    assert SCHEME.decode(ledger.encode(SCHEME, UPDATE)).shape == (50,)
    assert ledger.spent.epsilon == 100.0
    payload = ledger.encode(SCHEME, state)
    assert SCHEME.decode(payload, like=state)["b"].shape == (5, 6)
    assert ledger.spent.epsilon == 200.0
    with monkeypatch.context() as watched:
        watched.setattr(type(SCHEME), "encode", lambda *_, **__: pytest.fail("was encoded"))
        with pytest.raises(BudgetSpentError):
            ledger.encode(SCHEME, UPDATE)
    assert (ledger.rounds, ledger.remaining, ledger.budget, ledger.delta) == (2, 50.0, 250.0, 0.0)
    ledger.encode(SCHEME, UPDATE[:25])
    assert (ledger.remaining, ledger.rounds) == (0.0, 3)
    spent = ledger.spent
    assert (spent.unit, spent.adversary, spent.delta) == ("client", "server", 0.0)
    plain = jopeq.scheme("sdq", rate=2.0)
    assert refused(Ledger(1e9).encode, plain, UPDATE, kind=BudgetExceededError) == "no-guarantee"
    sized = jopeq.scheme("t", epsilon=2.0, size=4, clip=0.1)
    ledger = Ledger(budget=100.0)
    ledger.encode(sized, UPDATE[:5])  # the last sample counts in full
    assert ledger.spent.epsilon == pytest.approx(2 * sized.guarantee.epsilon)


def test_what_is_refused_for_its_type_costs_nothing():
    ledger = Ledger(budget=250.0)
    with pytest.raises(UpdateError):
        ledger.encode(SCHEME, np.arange(50))
    assert (ledger.rounds, ledger.spent.epsilon, ledger.scheme) == (0, 0.0, None)
    ledger.encode(SCHEME, UPDATE)  # and the lock was given back


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e300])
def test_whatever_the_values_are_they_are_encoded_and_charged_alike(bad):
    update = np.full(50, bad)
    ledgers = [Ledger(budget=250.0), Ledger(budget=250.0)]
    for ledger, values in zip(ledgers, (UPDATE, update), strict=True):
        assert SCHEME.decode(ledger.encode(SCHEME, values)).shape == (50,)
        SCHEME.decode(ledger.encode(SCHEME, {"a": values}), like={"a": UPDATE})
        with pytest.raises(BudgetExceededError):  # the third answer is the same as well
            ledger.encode(SCHEME, values)
    assert ledgers[0].to_json() == ledgers[1].to_json()


def test_an_update_is_charged_before_it_is_looked_at(monkeypatch):
    ledger = Ledger(budget=150.0)
    seen = []
    measure = kernels.measure
    spy = lambda *given: (seen.append(ledger.spent.epsilon), measure(*given))[1]  # noqa: E731
    monkeypatch.setattr(kernels, "measure", spy)
    ledger.encode(SCHEME, np.full(50, np.nan))
    assert seen == [100.0]
    assert (ledger.rounds, ledger.spent.epsilon, ledger.scheme) == (1, 100.0, SCHEME.spec)
    with pytest.raises(BudgetExceededError):
        ledger.encode(SCHEME, UPDATE)
    assert seen == [100.0]  # nor at all, once the budget is spent


def test_only_updates_against_the_server_count():
    for other in ({"adversary": "network"}, {"adversary": "decoded"}, {"unit": "client"}):
        scheme = promising(**{"epsilon": 1.0, "unit": "update", **other})
        assert refused(Ledger(budget=100.0).encode, scheme, UPDATE) == "unit"


@pytest.mark.parametrize("given", [{}, {"per": "tensor"}, {"center": True}])
def test_a_norm_in_the_clear_is_refused_before_it_is_charged(given):
    """No ε covers the update's norm, whatever the budget."""
    open_norm = jopeq.scheme("response", epsilon=4.0, rate=2.0, **given)
    ledger = Ledger(budget=1e9)
    for encode in (
        lambda: ledger.encode(open_norm, UPDATE),
        lambda: ledger.encode(open_norm, {"w": UPDATE}),
        lambda: ledger.charge(open_norm, UPDATE.size),
    ):
        assert refused(encode) == "norm"
    assert (ledger.rounds, ledger.spent.epsilon) == (0, 0.0)
    ledger.encode(jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=0.1), UPDATE)


def test_samples_of_all_rounds_compose_at_delta():
    scheme = jopeq.scheme("laplace", epsilon=0.05, clip=0.1)
    ledger = Ledger(budget=3.0, delta=1e-5)
    rounds = 2
    for _ in range(rounds):
        ledger.encode(scheme, np.zeros(100))
    with pytest.raises(BudgetExceededError):
        ledger.encode(scheme, np.zeros(100))
    assert optimal_epsilon(0.05, 100 * rounds, 1e-5) == ledger.spent.epsilon <= 3.0
    assert optimal_epsilon(0.05, 100 * (rounds + 1), 1e-5) > 3.0
    assert ledger.spent.delta == 1e-5
    assert OPTIMAL in str(ledger.spent)
    assert 0.05 * 100 > 3.0  # not even one round by adding up


def test_costs_with_a_delta_need_a_ledger_with_one():
    one = promising(epsilon=1.0, delta=1e-6, unit="update")
    assert refused(Ledger(100.0).encode, one, UPDATE, kind=BudgetExceededError) == "needs-delta"
    ledger = Ledger(budget=100.0, delta=1e-5)
    ledger.encode(one, UPDATE)
    assert Ledger.from_json(ledger.to_json()).spent == ledger.spent


def test_rounding_does_not_cost_the_last_round_and_failures_use_up_delta():
    small = jopeq.scheme("laplace", epsilon=0.1, clip=0.1)
    leaky = promising(epsilon=1.0, delta=4e-6, unit="update")
    for scheme, ledger, rounds in (
        (small, Ledger(budget=0.3), 3),
        (leaky, Ledger(budget=100.0, delta=1e-5), 2),
    ):
        for _ in range(rounds):
            ledger.encode(scheme, UPDATE[:1])
        with pytest.raises(BudgetExceededError):
            ledger.encode(scheme, UPDATE[:1])


def test_an_update_is_charged_by_its_size_as_if_it_were_encoded():
    encoded, charged = Ledger(250.0), Ledger(250.0)
    for _ in range(2):
        encoded.encode(SCHEME, UPDATE)
        charged.charge(SCHEME, UPDATE.size)
    assert charged.to_json() == encoded.to_json()
    with pytest.raises(BudgetSpentError):
        charged.charge(SCHEME, UPDATE.size)
    other = jopeq.scheme("laplace", epsilon=1.0, clip=0.1)
    assert refused(charged.charge, other, 1) == "scheme"
    assert charged.to_json() == encoded.to_json()


def test_threads_share_one_budget():
    ledger = Ledger(budget=1000.0)

    def is_encoded(_):
        try:
            return bool(ledger.encode(SCHEME, UPDATE))
        except BudgetExceededError:
            return False

    with ThreadPoolExecutor(8) as threads:
        outcomes = list(threads.map(is_encoded, range(40)))
    assert sum(outcomes) == ledger.rounds == 10
    assert ledger.spent.epsilon == 1000.0


def used_ledger():
    ledger = Ledger(budget=1000.0, delta=1e-6)
    ledger.encode(jopeq.scheme("laplace", epsilon=0.1, clip=1.0), UPDATE)
    return ledger


def test_save_and_load(tmp_path):
    ledger, path = used_ledger(), tmp_path / "ledger.json"
    ledger.save(path)
    ledger.save(path)  # over the old one
    again = Ledger.load(str(path))
    assert pickle.loads(pickle.dumps(ledger)).to_json() == ledger.to_json()
    assert again.to_json() == ledger.to_json()
    assert again.spent == ledger.spent
    assert (again.rounds, again.scheme) == (1, ledger.scheme)
    assert os.listdir(tmp_path) == ["ledger.json"]
    assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    assert refused(again.encode, SCHEME, UPDATE) == "scheme"


def resealed(content=None, **changes):
    """A ledger edited by someone who knows the checksum."""
    content = dict(content or json.loads(used_ledger().to_json()))
    del content["sha256"]
    content.update(changes)
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    content["sha256"] = hashlib.sha256(canonical.encode()).hexdigest()
    return json.dumps(content)


@pytest.mark.parametrize(
    "changes",
    [
        *({"budget": bad} for bad in (-1.0, math.nan, math.inf, "1000", None, 10**400)),
        *({"delta": bad} for bad in (1.0, -0.5)),
        *({"rounds": bad} for bad in (-1, 1.5, True)),
        *({"scheme": 7}, {"assumptions": [1]}, {"format": "jopeq-ledger-9"}, {"more": 1}),
        *({"spent": None}, {"spent": [[1.0, 0.0]]}, {"assumptions": None}),
        *({"spent": [[bad, 0.0, 3]]} for bad in (-1.0, math.nan, math.inf, None)),
        *({"spent": [[1.0, bad, 3]]} for bad in (2.0, -0.5, None)),
        *({"spent": [[1.0, 0.0, bad]]} for bad in (-3, 3.5, None)),
        *({"days": bad} for bad in (7, "2026-01-01", [None, ""])),
        *({"unit": bad} for bad in (7, "sample")),
        *({"runs": bad} for bad in (7, [7], [{}])),
    ],
)
def test_impossible_ledgers_are_refused(changes):
    assert refused(Ledger.from_json, resealed(**changes)) == "damaged"


@pytest.mark.parametrize("rounds", [(2, 1), (3, 3)])
def test_a_run_is_listed_once(rounds):
    """Of two entries only one would count towards ε."""
    ledger = Ledger(4.0, 1e-5)
    ledger.charge(SUMMED, 10)
    content = json.loads(ledger.to_json())
    (run,) = content["runs"]
    runs = [{**run, "spent": {**run["spent"], "rounds": count}} for count in rounds]
    assert refused(Ledger.from_json, resealed(content, rounds=3, runs=runs)) == "damaged"


@pytest.mark.parametrize("name", ["budget", "delta", "rounds", "scheme"])
def test_nobody_sets_what_a_ledger_counts(name):
    with pytest.raises(AttributeError):
        setattr(used_ledger(), name, 0)


def test_every_edit_is_noticed(tmp_path):
    text = used_ledger().to_json()
    for old, new in [('"rounds": 1', '"rounds": 0'), ("1000.0", "2000.0"), ("50\n", "49\n")]:
        assert old in text
        assert refused(Ledger.from_json, text.replace(old, new)) == "damaged"
    for corrupt in (text[:-20], "", "{}", "[]", "7", "null", "nonsense", "[" * 100_000):
        assert refused(Ledger.from_json, corrupt) == "damaged"
    (tmp_path / "ledger").write_bytes(b"\xff\xfe\x00")
    assert refused(Ledger.load, tmp_path / "ledger") == "damaged"


def test_a_ledger_is_created_once(tmp_path):
    path = tmp_path / "ledger.json"
    with pytest.raises(FileNotFoundError, match="jopeq ledger init"):
        Ledger.load(path)  # a missing ledger is not an empty one
    assert os.listdir(tmp_path) == []
    made = Ledger.create(path, 1000.0, 1e-6)
    assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    assert Ledger.load(path).to_json() == made.to_json()
    assert (made.budget, made.delta) == (1000.0, 1e-6)
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match=r"ledger\.json"):
        Ledger.create(path, 1000.0)
    assert path.read_bytes() == before
    for name, values in {
        "budget": (0.0, -1.0, math.nan, math.inf, "10", None),
        "delta": (-1e-9, 1.0, math.nan),
    }.items():
        for value in values:
            with pytest.raises(ValueError, match=name):
                Ledger.create(tmp_path / "bad.json", **{"budget": 1.0, name: value})
    assert os.listdir(tmp_path) == ["ledger.json"]


class Growing(dict):
    """A state that another thread adds a tensor to, once it was looked at."""

    def items(self):
        found = list(super().items())
        self["more"] = UPDATE
        return found


def test_what_is_charged_is_what_is_encoded():
    ledger = Ledger(budget=100.0)
    payload = ledger.encode(SCHEME, Growing(first=UPDATE))
    assert ledger.spent.epsilon == 100.0
    assert list(SCHEME.decode(payload, like={"first": UPDATE})) == ["first"]


def test_a_copy_does_not_forget_what_another_spent(tmp_path):
    path = tmp_path / "ledger.json"
    Ledger.create(path, budget=100.0)
    first, second = Ledger.load(path), Ledger.load(path)
    for _ in range(3):
        first.encode(SMALL, np.zeros(1))
        first.save(path)
    second.encode(SMALL, np.zeros(1))
    assert refused(second.save, path) == "changed"
    assert Ledger.load(path).rounds == 3
    assert refused(Ledger(budget=100.0).save, path) == "changed"  # nor does a new one


def test_a_ledger_of_a_client_counts_the_rounds_of_its_sums():
    summed = jopeq.ClientSum(epsilon=4.0, clip=1.0, clients=5, threshold=4, rounds=2)
    ledger, used = Ledger(4.0, 1e-5), Ledger(400.0, 1e-5)
    used.encode(SMALL, np.zeros(3))
    ledger.charge(summed, {"weight": 8, "bias": 2})
    ledger = Ledger.from_json(ledger.to_json())
    (run,) = ledger.runs
    assert (run.scheme, run.entries, run.planned, run.spent.rounds) == (summed.spec, 10, 2, 1)
    assert (ledger.rounds, ledger.spent.unit, used.runs) == (1, "client", ())
    assert 2.0 < ledger.spent.epsilon < 3.0  # one of two rounds
    for wrong in (lambda: ledger.encode(SMALL, np.zeros(3)), lambda: used.charge(summed, 10)):
        assert refused(wrong) == "scheme"
    records = {"records": 50, "sampling": 1.0, "rounds": 2}
    hospital = jopeq.RecordSum(epsilon=0.1, clip=1.0, clients=5, threshold=4, **records)
    assert refused(ledger.charge, hospital, 10) == "unit"
    ledger.charge(summed, 10)
    assert 3.9 < ledger.spent.epsilon <= 4.0
    for spent, given in ((ledger, summed), (Ledger(2.0, 1e-5), summed), (ledger, SUMMED)):
        with pytest.raises(BudgetSpentError):
            spent.charge(given, 10)  # no round left; none affordable; other terms on top


def test_a_budget_may_be_as_large_as_a_float():
    assert Ledger(1e300, 1e-5).charge(SUMMED, 10) < 4.0


def test_a_run_ends_with_its_rounds_whatever_the_budget_allows():
    ledger = Ledger(10.0, 1e-3)
    for _ in range(SUMMED.rounds):
        ledger.charge(SUMMED, 10)
    with pytest.raises(BudgetSpentError, match="all rounds=2 of this run"):
        ledger.charge(SUMMED, 10)
    ledger.charge(SUMMED, 10, run="another")
    assert ledger.rounds == 3


def test_rounds_of_less_noise_are_not_forgotten():
    """Those of an earlier version, say."""
    ledger = Ledger(10.0, 1e-3)
    ledger.charge(SUMMED, 10)
    content = json.loads(ledger.to_json())
    (run,) = content["runs"]
    run["spent"]["multiplier"] /= 2.0
    again = Ledger.from_json(resealed(content))
    again.charge(SUMMED, 10)
    assert again.runs[0].spent.multiplier == run["spent"]["multiplier"]


def test_a_refusal_for_want_of_delta_says_so():
    given = {"clip": 1.0, "records": 5000, "sampling": 1.0, "rounds": 1}
    given |= {"clients": 5, "threshold": 4}
    generous = jopeq.RecordSum(epsilon=0.05, delta=1e-4, **given)  # puts more by for each sum
    ledger = Ledger(4.0, 1e-5)

    def spend():
        for number in range(40):
            ledger.charge(generous, 10, run=str(number))

    with pytest.raises(BudgetSpentError, match="δ = 1e-05"):
        spend()
    assert 1 < ledger.rounds < 40
    assert ledger.spent.epsilon < 2.0
    large = jopeq.RecordSum(epsilon=4.0, delta=1e-5, **given)
    full = Ledger(4.0, 1e-5)
    full.charge(large, 10)
    with pytest.raises(BudgetSpentError) as other:
        full.charge(large, 10, run="again")
    assert "δ" not in str(other.value)
    assert refused(Ledger(4.0, 1e-12).charge, large, 10) == "scheme"


SUMMED = jopeq.ClientSum(epsilon=4.0, clip=1.0, clients=6, threshold=5, rounds=2)


@pytest.mark.parametrize(
    "changes",
    [
        *({"planned": bad} for bad in (0, 2.5, None)),
        *({"spent": {"multiplier": bad, "sampling": 1.0}} for bad in (-1.0, math.nan, None)),
        *({"spent": {"multiplier": 1.0, "sampling": 1.0, "rounds": bad}} for bad in (-1, 7)),
        *({name: None} for name in ("name", "scheme", "first", "entries")),
    ],
)
def test_impossible_runs_are_refused(changes):
    ledger = Ledger(4.0, 1e-5)
    ledger.charge(SUMMED, 10)
    content = json.loads(ledger.to_json())
    assert Ledger.from_json(resealed(content)).rounds == 1
    content["runs"][0].update(changes)
    assert refused(Ledger.from_json, resealed({**content, "sha256": ""})) == "damaged"


def test_a_forked_process_spends_nothing_and_takes_part_in_no_sum(monkeypatch):
    plain, ledger = Ledger(budget=100.0), Ledger(budget=4.0, delta=1e-5)
    ledger.charge(SUMMED, 10)
    monkeypatch.setattr("os.getpid", lambda: 0)
    for spend in (lambda: plain.encode(SMALL, np.zeros(1)), lambda: ledger.charge(SUMMED, 10)):
        assert refused(spend) == "process"


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_ledger_that_others_could_forge_is_not_believed(tmp_path):
    path = tmp_path / "shared" / "ledger.json"
    path.parent.mkdir()
    ledger = Ledger.create(path, budget=100.0)
    path.parent.chmod(0o777)
    for use in (lambda: Ledger.load(path), lambda: ledger.save(path)):
        with pytest.raises(PermissionError, match="others can write"):
            use()


def test_the_most_that_fits_is_paid_for_and_a_little_more_is_not():
    given = {"clip": 1.0, "records": 2000, "sampling": 1.0, "clients": 4, "threshold": 3}
    before = jopeq.RecordSum(epsilon=1.0, rounds=2, **given)
    sums = jopeq.RecordSum(epsilon=1.0, rounds=4, evaluations=2, **given)
    used = Ledger(2.0, 1e-5)
    for _ in range(2):
        used.charge(before, 100, run="statistics")
    most = used.most_epsilon(sums, 100)
    assert used.remaining < most < 2.0  # they compose better than they add up
    for factor in (1.0, 1.01):
        ledger, scheme = Ledger.from_json(used.to_json()), replace(sums, epsilon=most * factor)
        with nullcontext() if factor == 1.0 else pytest.raises(BudgetSpentError):
            for _ in range(4):
                ledger.charge(scheme, 100, run="training")
            for _ in range(2):
                ledger.charge(scheme.evaluation, 100, run="training")
