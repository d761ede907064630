"""ClientApps for PyTorch: ``record_client`` trains a model, ``head_client`` a new last layer.

Features of a frozen network are computed in the first message of a fit, as each message is a
process of its own, and kept next to the ledger until the last one: in a folder of mode 700, for one
body and one run of one app.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Callable, Collection
from contextlib import suppress
from logging import ERROR
from typing import Any

import numpy as np
import torch
from flwr.app import Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.logger import log
from torch import nn

from jopeq.files import atomic, check_own_file, own_folder
from jopeq.flower.client import agreed_task
from jopeq.flower.node import ledger_file
from jopeq.flower.queries import Table, answer_surveys
from jopeq.flower.sum_mod import SumMod, reply_sample, reply_table
from jopeq.flower.tasks import SCORING, Query, read_step
from jopeq.models import Features, Model, model_from_spec
from jopeq.statistics import Scoring, Survey
from jopeq.sums.clipped_total import ClippedTotal
from jopeq.sums.record_sample import Indices
from jopeq.sums.record_sum import RecordSum
from jopeq.torch.clipped_sum import Loss, check_model, check_scores, sum_gradients, sum_scores
from jopeq.torch.features import FrozenBody
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
    """A ClientApp that answers ``RecordStrategy`` with shares of fresh samples' clipped gradients.

    An error in model, loss or records is in the node's log and sends a share of 0.

    Parameters
    ----------
    scheme, model, loss
        The server's scheme; what makes the module, in the mode that it is trained in (layers that
        mix records are refused); ``loss(outputs, targets)`` as in ``torch.nn.functional``.
    load : callable
        ``load(context)`` gives (inputs, targets), one record in each entry of the first axis; or
        (inputs, targets, patients) with a patient's number for each record, where one may have
        several. It is called after the share is charged, and must read nothing else of the server.
        A record that cannot be read is returned as it is, and counts as zeros.
    example : tuple
        One public record (input, target), with the shapes and dtypes that all must have. A record
        that does not fit, or has no patient's number, counts as zeros.
    most_records : Optional[int] (default: None)
        Public bound on this hospital's records (or patients), by default the scheme's, to which
        every round is padded. With more ε does not hold, and the node's log says so.
    most_rows, chunk
        As for ``jopeq.torch.clipped_sum``; patients have one record each by default.
    scoring, score
        For the scheme's ``evaluations``: see ``jopeq.torch.scored_sum``. ``scoring`` is the
        strategy's too, without levels; by default one logit, or two outputs, of 0 and 1.
    run, unsigned
        As for ``SumMod``.
    load_table, surveys
        As ``load`` and ``surveys`` of ``survey_client``; one ledger counts both.
    """
    dimension = check_model(model(), loss, example)
    if scoring.levels:
        raise ValueError(f"scoring must have no levels here, got {scoring.levels}")
    if scheme.evaluations:
        check_scores(model().eval(), scoring, example, score=score)
    padded = scheme.capacity(most_records)  # refuses a cap above the scheme's

    def check(content: RecordDict, is_evaluation: bool) -> None:
        _load(model(), content)
        if is_evaluation:
            told = {one.get(SCORING) for one in content.config_records.values()}
            if told != {scoring.spec}:
                raise ValueError(f"scoring is {scoring.spec} here, the server's {told!r:.200}")

    def reply(msg: Message, context: Context) -> Message:
        """The reply for a sample of the patients; the mod draws it."""
        agreed = agreed_task()
        is_evaluation = agreed is not None and agreed.kind == MessageType.EVALUATE
        own = scheme.evaluation if is_evaluation else scheme
        if agreed is None or agreed.scheme.spec != own.spec:
            raise ValueError(f"this app samples for {own.spec}, the terms are of another scheme")
        module = _load(model(), msg.content)
        inputs, targets, *group = load(context)
        records = read_records(inputs, targets, example, *group)
        places = records.of_patients(most_rows if group or most_rows != 1 else None)
        most = most_records or scheme.most_records or scheme.records
        if len(places) > most:  # a refusal would tell the server; leaving some out moves others in
            told = "records: there are %d and most_records=%d, so ε does not hold: raise it"
            log(ERROR, told, len(places), most)
        elif not len(places):
            log(ERROR, "records: this hospital has none, and its share is noise alone")

        def total_of(drawn: Indices) -> ClippedTotal:
            some = places[drawn]
            if is_evaluation:
                given = module.eval(), records, some, scoring
                return sum_scores(*given, score=score, chunk=None, padded=padded)
            return sum_gradients(
                module, loss, records, some, scheme.clip, chunk=chunk, padded=padded
            )

        return reply_sample(msg, len(places), total_of, most_records=most_records)

    mod = SumMod(
        scheme, run=run, unsigned=unsigned, dimension=dimension, evaluated=scoring.dimension,
        check=check, surveys=() if load_table is None else surveys,
    )  # fmt: skip
    app = ClientApp(mods=[mod])
    if load_table is not None:
        answer_surveys(app, load_table, surveys)
    app.train()(reply)
    app.evaluate()(reply)
    return app


def _load(module: nn.Module, content: RecordDict) -> nn.Module:
    """The module with the server's arrays, which must be its own by name and shape."""
    (arrays,) = content.array_records.values()
    module.load_state_dict(arrays.to_torch_state_dict())
    return module


def head_client(
    body: nn.Module,
    *,
    load: Load,
    example: tuple[Any, Any],
    models: Collection[Model] | None = None,
    run: str = "",
    unsigned: bool = False,
) -> ClientApp:
    """A ClientApp that fits models of the ``Features`` that a frozen network makes of records.

    ``body`` is public, and the same in all hospitals; it runs in evaluation mode, one record at a
    time. ``load`` and ``example`` are as for ``record_client``, without patients' numbers; ``load``
    is called in the first message of a run. ``models``, ``run`` and ``unsigned`` are as for
    ``model_client``.
    """
    frozen = FrozenBody(body, example)
    weights = io.BytesIO()
    torch.save(body.state_dict(), weights)

    def check(query: Query) -> None:
        kinds = [kind for _, kind in query.keys] if isinstance(query, Model) else []
        sizes = [one.size for one in getattr(query, "columns", ()) if isinstance(one, Features)]
        if kinds != ["numbers", "rows"] or sizes != [frozen.size]:
            kind = f"Features of size {frozen.size} and an outcome in numbers"
            raise ValueError(f"models of {kind} are answered here, got {query.spec:.300}")

    for model in models or ():
        check(model)
    answered = check if models is None else models
    app = ClientApp(mods=[SumMod(None, run=run, unsigned=unsigned, surveys=answered)])

    @app.query()
    def query(msg: Message, context: Context) -> Message:
        agreed = agreed_task()
        if agreed is None or (models is not None and agreed.spec not in {m.spec for m in models}):
            raise ValueError("this app has not agreed to this model")
        model = model_from_spec(agreed.spec)
        check(model)
        key = hashlib.sha256(f"{context.run_id} {body}".encode() + weights.getvalue()).hexdigest()
        ledger = ledger_file(context.node_config)
        folder = own_folder(ledger.with_name(f"{ledger.name}.features"))
        folder.chmod(0o700)
        file = folder / "features.npz"
        found: Any = None
        with suppress(OSError, KeyError, ValueError, zipfile.BadZipFile):
            check_own_file(file, is_secret=True)
            with np.load(file, allow_pickle=False) as kept:
                if str(kept["key"]) == key:
                    found = kept["rows"], kept["targets"]
        if found is None:
            inputs, targets = load(context)
            records = read_records(inputs, targets, example)
            rows = frozen.features(records, model.most_records or model.records)
            found = rows, records.parts[-1].cpu().numpy()
            with atomic(file, mode=0o600) as opened:
                np.savez(opened, key=np.array(key), rows=found[0], targets=found[1])
        if read_step(msg.content)[0] == model.method.messages - 1:
            file.unlink()
        (outcome, _), (column, _) = model.keys
        return reply_table(msg, {column: found[0], outcome: found[1]})

    return app
