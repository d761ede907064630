"""``head_client``: a ClientApp for a new last layer on a frozen network, in a few messages.

Features are computed in the first message, as each message is a process of its own, and kept next
to the ledger until the last one: in a folder of mode 700, for one body and one run of one app.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from torch import nn

from jopeq.files import atomic, check_own_file, own_folder
from jopeq.flower.budget import ledger_file
from jopeq.flower.client import agreed_task
from jopeq.flower.record_app import Load
from jopeq.flower.sum_mod import SumMod, reply_table
from jopeq.flower.tasks import Query, read_step
from jopeq.models import Features, Model, model_from_spec
from jopeq.torch.features import FrozenBody
from jopeq.torch.records import read_records


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

    Parameters
    ----------
    body : nn.Module
        Public, and alike in all hospitals. It runs in evaluation mode, one record at a time.
    load : callable
        ``load(context)`` gives (inputs, targets), one record in each entry of the first axis. It is
        called in the first message of a run, after the share is charged, and must read nothing else
        of the server.
    example : tuple
        One public record (input, target), with the shapes and dtypes that all must have. What does
        not fit counts as zeros.
    models
        Those that the hospital has agreed to; None takes any of these features within the node's
        configuration, as for ``survey_client``.
    run, unsigned
        As for ``SumMod``.
    """
    frozen = FrozenBody(body, example)
    weights = io.BytesIO()
    torch.save(body.state_dict(), weights)

    def check(query: Query) -> None:
        kinds = [kind for _, kind in query.keys] if isinstance(query, Model) else []
        sizes = [one.size for one in getattr(query, "columns", ()) if isinstance(one, Features)]
        if kinds != ["numbers", "rows"] or sizes != [frozen.size]:
            raise ValueError(
                f"models of Features of size {frozen.size} and of an outcome in numbers are "
                f"answered here, got {query.spec:.300}"
            )

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
        found = _recall(file, key)
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


def _recall(file: Path, key: str) -> tuple[Any, Any] | None:
    """The features that were kept under this key."""
    with suppress(OSError, KeyError, ValueError, zipfile.BadZipFile):
        check_own_file(file, is_secret=True)
        with np.load(file, allow_pickle=False) as kept:
            if str(kept["key"]) == key:
                return kept["rows"], kept["targets"]
    return None
