from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import jopeq
from jopeq.flower.mod import LEDGER_STATE, Budget

SCHEME = jopeq.scheme("laplace", epsilon=4.0, clip=0.1)


def spend(budget, context):
    ledger = budget.open(context, allow_any_scheme=False)
    ledger.encode(SCHEME, np.zeros(100))
    budget.keep(context, ledger)
    return ledger


def test_the_state_of_the_run_remembers(flower):
    budget, context = Budget(epsilon=1000.0), flower.context()
    assert [spend(budget, context).rounds for _ in range(2)] == [1, 2]
    with pytest.raises(jopeq.BudgetExceededError):
        spend(budget, context)
    assert budget.open(context, allow_any_scheme=False).rounds == 2


@pytest.fixture
def in_a_file(tmp_path):
    """A budget of 1000 whose ledger has a file."""
    jopeq.Ledger.create(tmp_path / "ledger.json", 1000.0)
    return Budget(epsilon=1000.0, path=tmp_path / "ledger.json")


def test_a_file_remembers_across_runs(flower, in_a_file):
    spend(in_a_file, flower.context())
    assert spend(in_a_file, flower.context()).rounds == 2


def test_a_deleted_file_is_not_an_empty_ledger(flower, in_a_file):
    spend(in_a_file, flower.context())
    in_a_file.path.unlink()
    with pytest.raises(FileNotFoundError, match="jopeq ledger init"):
        spend(in_a_file, flower.context())
    assert not in_a_file.path.exists()


def test_an_adaptive_clip_needs_a_ledger_for_any_scheme(flower, in_a_file):
    with pytest.raises(jopeq.BudgetExceededError, match="jopeq ledger init --any-scheme"):
        in_a_file.open(flower.context(), allow_any_scheme=True)
    in_a_file.path.unlink()
    jopeq.Ledger.create(in_a_file.path, 1000.0, allow_any_scheme=True)
    assert in_a_file.open(flower.context(), allow_any_scheme=True).allows_any_scheme


def test_two_runs_of_a_node_cannot_both_spend_the_rest(flower, in_a_file):
    budget = in_a_file
    is_open = threading.Event()

    def first():
        with budget.alone():
            ledger = budget.open(flower.context(), allow_any_scheme=False)
            is_open.set()
            time.sleep(0.2)  # the other has time to read the ledger as it was
            ledger.encode(SCHEME, np.zeros(200))
            budget.keep(flower.context(), ledger)

    thread = threading.Thread(target=first)
    thread.start()
    assert is_open.wait(timeout=10)
    with budget.alone():
        ledger = budget.open(flower.context(), allow_any_scheme=False)
        with pytest.raises(jopeq.BudgetExceededError, match="spent so far: 800 in 1 rounds"):
            ledger.encode(SCHEME, np.zeros(200))
    thread.join()


def test_changed_budget_is_refused_and_names_both(flower):
    context = flower.context()
    spend(Budget(epsilon=1000.0), context)
    with pytest.raises(jopeq.BudgetExceededError, match=r"budget 1000 .*now say 2000"):
        Budget(epsilon=2000.0).open(context, allow_any_scheme=False)


def test_a_damaged_ledger_is_not_an_empty_one(flower):
    context = flower.context()
    spend(Budget(epsilon=1000.0), context)
    context.state[LEDGER_STATE]["ledger"] = "{}"
    with pytest.raises(ValueError, match="not a ledger"):
        Budget(epsilon=1000.0).open(context, allow_any_scheme=False)


def test_impossible_budget():
    with pytest.raises(ValueError, match="budget must be a number"):
        Budget(epsilon=-1.0)
