"""Models on Flower: a ClientApp for a hospital's table, and the server's fit.

A fit is the planned number of query messages to each hospital, each a private sum of the whole
cohort. Its state between two sums is public, and one counter in each ledger has all of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from logging import INFO
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from flwr.clientapp import ClientApp
from flwr.common.logger import log
from flwr.serverapp import Grid

from jopeq.files import atomic
from jopeq.flower.server import SumOptions, SumServer
from jopeq.flower.survey import Table, survey_client
from jopeq.flower.tasks import query_task, step_content
from jopeq.models import Fit, Model, State


def model_client(
    load: Table,
    *,
    models: Collection[Model] | None = None,
    run: str = "",
    unsigned: bool = False,
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
    steps = (0,) if model.sum_of(0) is model.sum_of(1) else (0, 1)
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
        server = sums[min(state.step, len(sums) - 1)]
        left = messages - state.step if server is sums[-1] else 1
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
