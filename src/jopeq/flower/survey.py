"""Surveys on Flower: a ClientApp that answers them, and the server's question.

A survey (``jopeq.statistics.Survey``) is one private sum, taken by ``query`` messages. ``SumMod``
is the hospital's end of it, as it is for training.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from logging import INFO
from typing import Any, Unpack

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.logger import log
from flwr.serverapp import Grid

from jopeq.flower.client import agreed_task
from jopeq.flower.server import SumOptions, SumServer
from jopeq.flower.sum_mod import SumMod, reply_table
from jopeq.flower.tasks import Query, query_task
from jopeq.statistics import Answers, Survey

Table = Callable[[Context], Any]


def survey_client(
    load: Table,
    *,
    surveys: Collection[Query] | None = None,
    run: str = "",
    unsigned: bool = False,
) -> ClientApp:
    """A ClientApp that answers surveys and fits. ``record_client`` makes one that also trains.

    ``load(context)`` gives the hospital's table, one row a record: what ``Survey.rows`` takes. It
    is called after the share is charged, and must read nothing else of the server. An error is in
    the node's log and sends the share of an empty hospital. ``surveys`` are the surveys and models
    that the hospital has agreed to; None answers any within the node's configuration, which must
    have ``jopeq-max-epsilon``, ``jopeq-max-delta`` and ``jopeq-columns``. ``run`` and ``unsigned``
    are as for ``SumMod``.
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
