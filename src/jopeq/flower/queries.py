"""Surveys and models on Flower: ClientApps for a hospital's table, and the server's questions.

A survey is one private sum, the fit of a model the planned number of them, taken by query messages;
``SumMod`` is the hospital's end. The state of a fit between two sums is public, and one counter in
each ledger has all of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection
from logging import INFO
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.logger import log
from flwr.serverapp import Grid

from jopeq.files import atomic
from jopeq.flower.client import agreed_task
from jopeq.flower.server import SumOptions, SumServer
from jopeq.flower.sum_mod import SumMod, reply_table
from jopeq.flower.tasks import Query, query_task, step_content
from jopeq.models import Fit, Model, State
from jopeq.statistics import Answers, Survey

Table = Callable[[Context], Any]


def survey_client(
    load: Table, *, surveys: Collection[Query] | None = None, run: str = "", unsigned: bool = False
) -> ClientApp:
    """A ClientApp that answers surveys and fits. ``record_client`` makes one that also trains.

    ``load(context)`` gives the hospital's table, as ``Survey.rows`` takes it. It is called after
    the share is charged, and must read nothing else of the server. An error is in the node's log
    and sends the share of an empty hospital. ``surveys`` are the surveys and models that the
    hospital has agreed to; None answers any within the node's configuration, which must have
    ``jopeq-max-epsilon``, ``jopeq-max-delta`` and ``jopeq-columns``. ``run`` and ``unsigned`` are
    as for ``SumMod``.
    """
    mod = SumMod(None, run=run, unsigned=unsigned, surveys=surveys)
    return answer_surveys(ClientApp(mods=[mod]), load, surveys)


def answer_surveys(
    app: ClientApp, load: Table, surveys: Collection[Query] | None = None
) -> ClientApp:
    """Make the app answer surveys too; one of its mods is a ``SumMod`` for them."""
    specs = None if surveys is None else {survey.spec for survey in surveys}

    @app.query()
    def query(msg: Message, context: Context) -> Message:
        agreed = agreed_task()
        if specs is not None and (agreed is None or agreed.spec not in specs):
            raise ValueError("this app has not agreed to this survey")
        return reply_table(msg, load(context))

    return app


def ask(
    grid: Grid,
    survey: Survey,
    *,
    run: str = "",
    timeout: float = 3600.0,
    **options: Unpack[SumOptions],
) -> Answers:
    """Ask the hospitals, and return the answers; ``RoundFailedError`` if there is no sum.

    The first messages ask who is there and cost nothing; the next make the shares. A hospital that
    does not answer then costs the others one of the survey's rounds, and a smaller cohort is asked.
    A ledger takes a survey once, and anew under another ``run``, whose name the clients have too.
    ``timeout`` bounds the seconds of all of it; for ``options`` see ``SumOptions``.
    """
    if not isinstance(survey, Survey):
        raise ValueError(f"survey must be a jopeq.statistics.Survey, got {survey!r:.80}")
    server = SumServer(query_task(survey, run), "ask", **options)
    log(INFO, "ask: %s\n%s", survey.name, survey.sum.guarantee)
    server.announce()
    decoded = server.sum(grid, RecordDict(), number=1, timeout=timeout)
    return survey.answers(decoded, clients=len(server.server.cohort))


def model_client(
    load: Table, *, models: Collection[Model] | None = None, run: str = "", unsigned: bool = False
) -> ClientApp:
    """A ClientApp that takes part in fits: ``survey_client``, where ``surveys`` are ``models``.

    ``load(context)`` gives the hospital's table, as ``Model.fit`` takes it, for each sum anew.
    """
    return survey_client(load, surveys=models, run=run, unsigned=unsigned)


def fit(
    grid: Grid,
    model: Model,
    *,
    run: str = "",
    checkpoint: str | os.PathLike[str] | None = None,
    timeout: float = 3600.0,
    **options: Unpack[SumOptions],
) -> Fit:
    """Fit a model to the hospitals' tables; ``RoundFailedError`` if there is no sum.

    Each sum is a message to each hospital and back, after an exchange of keys that costs nothing.
    If a hospital does not answer, the others are asked for the sum again, as often as the
    ``repeats`` of the model allow; averages begin anew where the hospitals are others. A ledger
    takes a fit once, and anew under another ``run``, whose name the clients have too.
    ``checkpoint`` is a file of the state, written before each attempt leaves and after each sum: if
    there is one, the fit goes on from it. ``timeout`` bounds the seconds of a sum; for ``options``
    see ``SumOptions``.
    """
    if not isinstance(model, Model):
        raise ValueError(f"model must be one of jopeq.models, got {model!r:.80}")
    file = None if checkpoint is None else Path(checkpoint)
    state, cohort, messages = State(), list[str](), model.method.messages
    steps = (0, 1) if any(map(model.is_other, range(messages))) else (0,)
    sums = [SumServer(query_task(model, run, step=step), "fit", **options) for step in steps]

    def keep() -> None:
        if file is None:
            return
        shares = [{**one.state_dict(), "reports": []} for one in sums]
        told = {"spec": model.spec, "run": run, "cohort": cohort, "sums": shares}
        arrays: dict[str, Any] = {"told": np.array(json.dumps(told)), **state.arrays()}
        with atomic(file, mode=0o600) as opened:
            np.savez(opened, **arrays)

    if file is not None and file.exists():
        with np.load(file, allow_pickle=False) as kept:
            told = json.loads(str(kept["told"]))
            state = State.from_arrays({name: kept[name] for name in kept.files if name != "told"})
        if (told["spec"], told["run"]) != (model.spec, run):
            raise ValueError(
                f"checkpoint {file} is of another model or run: fit the same, or remove the file"
            )
        cohort = told["cohort"]
        for one, before in zip(sums, told["sums"], strict=True):
            one.load_state_dict(before)
        log(INFO, "fit: going on after %d of %d sums", state.step, messages)
    log(INFO, "fit: %s: %s\n%s", model.name, model.plan().verdict, model.sum_of(0).guarantee)
    sums[0].announce()
    for one in sums:
        one.beside, one.keep = [other for other in sums if other is not one], keep
    while state.step < messages:
        is_other = model.is_other(state.step)
        server = sums[is_other]
        left = sum(model.is_other(step) == is_other for step in range(state.step, messages))
        if left > (planned := server.task.scheme.rounds) - server.shares:
            raise server.failure(
                f"{left} sums are left, and of {planned} that the ledgers allow {server.shares} "
                "were asked for: fit under another run, and plan a model with repeats"
            )
        content = step_content(state.step, state.sent)
        mean = server.sum(grid, content, number=state.step + 1, timeout=timeout)
        found = [] if server.server.attempt is None else server.server.attempt.entries
        members = sorted(entry.identity.hex() for entry in found)
        state = model.advance(state, mean, clients=len(members), is_same=members == cohort)
        cohort = members
        keep()
    return model.finish(state, shares=[one.shares for one in sums])
