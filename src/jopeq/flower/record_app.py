"""``record_client``: a whole ClientApp from a model, a loss and a hospital's records."""

from __future__ import annotations

from collections.abc import Callable, Collection
from logging import ERROR
from typing import Any

import numpy as np
import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.logger import log
from torch import nn

from jopeq.flower.client import agreed_task
from jopeq.flower.sum_mod import SumMod, reply_sample
from jopeq.flower.survey import Table, answer_surveys
from jopeq.flower.tasks import SCORING
from jopeq.statistics import Scoring, Survey
from jopeq.sums.clipped_total import ClippedTotal
from jopeq.sums.record_sample import Indices
from jopeq.sums.record_sum import RecordSum
from jopeq.torch.clipped_sum import Loss, check_model, check_scores, clipped_sum, scored_sum
from jopeq.torch.records import read_records

Load = Callable[[Context], tuple[Any, ...]]
_OUTCOMES = Scoring()


def record_client(
    scheme: RecordSum,
    *,
    model: Callable[[], nn.Module],
    loss: Loss,
    load: Load,
    example: tuple[Any, Any],
    most_records: int | None = None,
    most_rows: int = 1,
    chunk: int | None = None,
    scoring: Scoring = _OUTCOMES,
    score: Loss | None = None,
    run: str = "",
    unsigned: bool = False,
    load_table: Table | None = None,
    surveys: Collection[Survey] | None = None,
) -> ClientApp:
    """A ClientApp that answers ``RecordStrategy`` with shares of clipped gradients.

    A round draws a fresh sample, in secret, computes the gradient of each drawn record, clips and
    adds them up, and sends a masked share. An error in model, loss or records is in the node's log
    and sends a share of 0.

    Parameters
    ----------
    scheme : RecordSum
        The same as the server's.
    model : callable
        Makes the module, in the mode that it is trained in. Layers that mix records are refused.
    loss : callable
        ``loss(outputs, targets)`` of a batch, as in ``torch.nn.functional``.
    load : callable
        ``load(context)`` gives (inputs, targets), one record in each entry of the first axis; or
        (inputs, targets, patients) with a patient's number for each record, where one may have
        several. It is called after the share is charged, and must read nothing else of the server.
    example : tuple
        One public record (input, target), with the shapes and dtypes that all must have. Records
        are read one by one: what does not fit, or has no patient's number, counts as zeros.
    most_records : Optional[int] (default: None)
        Public bound on this hospital's records (or patients), by default the scheme's. Every round
        takes as long as a sample of so many needs. Of more records ε does not hold, and the node's
        log says so.
    most_rows : int (default: 1)
        Public bound on the records of a patient; of more, the first count.
    chunk : Optional[int] (default: None)
        Records at a time; see ``jopeq.torch.clipped_sum``.
    scoring, score
        For the scheme's ``evaluations``: see ``jopeq.torch.scored_sum``. The strategy's ``scoring``
        must be the same, and have no levels. By default one logit, or two outputs, of 0 and 1.
    run, unsigned
        As for ``SumMod``.
    load_table, surveys
        As ``load`` and ``surveys`` of ``survey_client``: the app answers surveys too. One ledger
        counts both.
    """
    dimension = check_model(model(), loss, example)
    if scoring.levels:
        raise ValueError(f"scoring must have no levels here, got {scoring.levels}")
    if scheme.evaluations:
        check_scores(model().eval(), scoring, example, score=score)
    scheme.capacity(most_records)  # refuses a cap above the scheme's

    def check(content: RecordDict, is_evaluation: bool) -> None:
        _load(model(), content)
        told = {one.get(SCORING) for one in content.config_records.values()}
        if is_evaluation and told != {scoring.spec}:
            raise ValueError(f"scoring is {scoring.spec} here, the server's {told!r:.200}")

    mod = SumMod(
        scheme,
        run=run,
        unsigned=unsigned,
        dimension=dimension,
        evaluated=scoring.dimension,
        check=check,
        surveys=() if load_table is None else surveys,
    )
    app = ClientApp(mods=[mod])
    if load_table is not None:
        answer_surveys(app, load_table, surveys)

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        agreed = agreed_task()
        if agreed is None or agreed.scheme.spec != scheme.spec:
            raise ValueError(f"this app samples for {scheme.spec}, the terms are of another scheme")
        module = _load(model(), msg.content)

        def total(inputs: Any, targets: Any, **options: Any) -> ClippedTotal:
            return clipped_sum(module, loss, inputs, targets, scheme.clip, chunk=chunk, **options)

        return _reply(msg, scheme, load(context), example, most_records, most_rows, total)

    @app.evaluate()
    def evaluate(msg: Message, context: Context) -> Message:
        agreed = agreed_task()
        if agreed is None or agreed.scheme.spec != scheme.evaluation.spec:
            raise ValueError("this app evaluates for the terms of its own scheme alone")
        module = _load(model(), msg.content).eval()

        def total(inputs: Any, targets: Any, **options: Any) -> ClippedTotal:
            return scored_sum(module, inputs, targets, scoring, score=score, **options)

        return _reply(msg, agreed.mechanism, load(context), example, most_records, most_rows, total)

    return app


def _load(module: nn.Module, content: RecordDict) -> nn.Module:
    """The module with the server's arrays, which must be its own by name and shape."""
    (arrays,) = content.array_records.values()
    module.load_state_dict(arrays.to_torch_state_dict())
    return module


def _reply(
    msg: Message,
    scheme: RecordSum,
    found: tuple[Any, ...],
    example: tuple[Any, Any],
    most_records: int | None,
    most_rows: int,
    total: Callable[..., ClippedTotal],
) -> Message:
    """The reply for a sample of the patients; ``total`` gets records and whose they are."""
    inputs, targets, *group = found
    records = read_records(inputs, targets, example, *group)
    places = records.of_patients(most_rows if group or most_rows != 1 else None)
    most = most_records or scheme.most_records or scheme.records
    if len(places) > most:  # a refusal would tell the server; leaving some out moves others in
        told = (
            "records: there are %d and most_records=%d, so ε does not hold: raise it on both ends"
        )
        log(ERROR, told, len(places), most)
    elif not len(places):
        log(ERROR, "records: this hospital has none, and its share is noise alone")

    def total_of(drawn: Indices) -> ClippedTotal:
        chosen = places[drawn]
        indices = torch.from_numpy(chosen[chosen >= 0])
        *taken, labels = (part[indices.to(part.device)] for part in records.parts)
        return total(
            tuple(taken),
            labels,
            group=np.nonzero(chosen >= 0)[0] if group else None,
            most_rows=most_rows if group else None,
            padded=scheme.capacity(most_records),
        )

    return reply_sample(msg, len(places), total_of, most_records=most_records)
