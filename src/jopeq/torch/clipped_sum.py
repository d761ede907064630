"""The exact total of clipped gradients, one for each record, of any PyTorch model.

Privacy needs every row to be a function of its own record and of public values. Records run through
``torch.func.vmap``, each as a batch of its own, so that no layer can mix two of them, draw from a
shared generator or write to a buffer. Chunks have one padded shape and linear layers whole cache
lines, so that the floats of a row depend neither on how many records there are nor on its place.
Products of matrices that no linear layer makes (attention's, ``x @ w``) keep a dependence of 1e-7:
``RecordSum.batch_dependence`` is there for such.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from jopeq import kernels
from jopeq.schemes.parameters import as_annotated
from jopeq.statistics.evaluation import Scoring
from jopeq.sums.clipped_total import ClippedTotal, as_group
from jopeq.sums.evaluation import EVALUATED, check_largest_loss

_LOG = logging.getLogger("jopeq")

Loss = Callable[[Any, Any], Tensor]
Rows = tuple[Tensor, ...]
"""One entry for each record in every tensor. Gradients are (rows,), or of a linear layer (slopes,
features, bias): the products of slopes and features, then the bias, make a row."""

_ROW_BYTES, _INPUT_BYTES = 1 << 27, 1 << 24  # in a chunk, by default
_RECORDED = 3  # chunks from which a CUDA graph pays
_LEAST, _MOST = 8, 1024  # records in a chunk; matrix products round fewer than 8 in other ways
_HOST_PIECE, _DEVICE_PIECE = 1 << 21, 1 << 26  # entries of a linear layer's rows made at a time
_LINE = 64  # bytes
_JUMP = 1e-6  # of outputs within which an answer is neither right nor wrong

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout,
             nn.FeatureAlphaDropout)  # fmt: skip
_CLASS_LOSSES = (functional.cross_entropy, functional.nll_loss)
_CLASS_LOSS_MODULES = (nn.CrossEntropyLoss, nn.NLLLoss)


def clipped_sum(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    clip: float,
    group: Any = None,
    chunk: int | None = None,
    padded: int | None = None,
) -> ClippedTotal:
    """The exact total of the clipped gradients of the records' losses.

    Its entries are those of the parameters that require a gradient, in the order of
    ``model.parameters()``. A record without a finite gradient (a label out of range, a NaN) counts
    as zeros.

    Parameters
    ----------
    model : nn.Module
        Parameters, buffers and mode stay as they are.
    loss : callable
        ``loss(outputs, targets)`` of a batch, as in ``torch.nn.functional``. The batch is always
        one record.
    inputs, targets : tensors
        One record in each entry of the first axis. A tuple of inputs becomes the arguments of the
        model.
    clip : float
        Largest norm of a record's gradient, or of the summed gradients of a group.
    group : integers, optional
        Whose record each is. The gradients of one patient's records are added up and clipped once.
    chunk : int, optional
        Records at a time, at least 8. Every chunk is padded to this size. By default as many as
        128 MiB of gradients and 16 MiB of inputs hold, at most 1,024 and at most ``padded``.
    padded : int, optional
        How many records the work is for, if that is more than there are: gradients of zeros are
        computed, clipped and dropped, so that the time does not tell the number of records.

    >>> inputs, labels = torch.eye(3), torch.tensor([0, 1, 1])
    >>> total = clipped_sum(nn.Linear(3, 2), functional.cross_entropy, inputs, labels, clip=0.5)
    >>> total.dimension
    8
    """
    total = ClippedTotal(count_entries(model), clip)
    spare = ClippedTotal(total.dimension, clip) if padded else None
    trained = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    records = _as_records(inputs, targets)
    size = _choose_chunk(chunk, sum(map(_entries_made, trained.values())), records, padded)
    count = max(len(records[0]), padded or 0)
    order = ids = None
    if group is not None:
        ids = as_group(group, len(records[0]))
        order = np.argsort(ids, kind="stable")  # a group's rows come one after the other
        ids = ids[order]
    compute = _gradients(model, _with_checked_labels(loss), trained)
    device = next(iter(trained.values())).device
    is_recorded = device.type == "cuda" and count >= _RECORDED * size
    if device.type == "cpu":
        kernels.note(count * total.dimension)  # all at once: they pay for the first chunk too
    with _in_small_steps():
        chunks = _chunks(records, order, size, device, count)
        pieces = _pieces(compute, chunks, spare, ids is not None, is_recorded)
        if ids is None:
            for piece in pieces:
                _add(total, piece)
        else:
            _add_groups(total, ids, (rows for (rows,) in pieces))
    return total


def count_entries(model: nn.Module) -> int:
    """Entries of a record's gradient; ``ValueError`` for a model that ``clipped_sum`` refuses."""
    _check_layers(model)
    found = sum(p.numel() for p in model.parameters() if p.requires_grad)
    if not found:
        raise ValueError("model has no parameter that requires a gradient: unfreeze its head")
    return found


def evaluated_sum(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    largest_loss: float,
    group: Any = None,
    chunk: int | None = None,
    padded: int | None = None,
    score: Loss | None = None,
) -> ClippedTotal:
    """The exact total of how well a model does on each record: ``read_evaluation`` reads the mean.

    A record's row is (1, 2·score − 1, 2·loss/largest_loss − 1)/√3, of norm 1 at most. A record
    without a finite loss counts as zeros, and a patient's records (``group``) as their mean.

    Parameters
    ----------
    model, loss, inputs, targets, group, chunk, padded
        As for ``clipped_sum``. The model is run in the mode that it is in, with float64 numbers.
    largest_loss : float
        Public bound. Larger losses count as this.
    score : callable, optional
        ``score(outputs, targets)`` of a batch, from 0 to 1 and without jumps. By default the right
        answers, for targets that are classes.

    >>> model, labels = nn.Linear(3, 2), torch.tensor([0, 1, 1])
    >>> _ = nn.init.zeros_(model.weight), nn.init.zeros_(model.bias)
    >>> total = evaluated_sum(model, functional.cross_entropy, torch.eye(3), labels, 2.0)
    >>> (total.to_numpy() * math.sqrt(3)).round(2)  # three records, no output the largest
    array([ 3.  ,  0.  , -0.92])
    """
    check_largest_loss(largest_loss)
    total, spare = ClippedTotal(EVALUATED, 1.0), ClippedTotal(EVALUATED, 1.0) if padded else None
    _check_layers(model)
    records = _as_records(inputs, targets)
    if score is None and records[-1].is_floating_point():
        raise ValueError("score must be given: targets that are no classes have no right answers")
    ids = np.arange(len(records[0])) if group is None else as_group(group, len(records[0]))
    _, places, counts = np.unique(ids, return_inverse=True, return_counts=True)
    weights = torch.from_numpy(1.0 / (math.sqrt(EVALUATED) * counts[places]))
    checked, scored = _with_checked_labels(loss), score or _right_answers
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    state = {name: _widen(one.detach()) for name, one in state.items()}

    def row(weight: Tensor, *record: Tensor) -> Tensor:
        *arguments, target = record
        outputs = functional_call(model, state, tuple(one[None] for one in arguments))
        found = checked(outputs, target[None]).double().reshape(())
        right = scored(outputs, target[None]).double().mean().clamp(0.0, 1.0)
        lost = found.clamp(0.0, largest_loss) / largest_loss
        parts = torch.stack([torch.ones_like(right), 2.0 * right - 1.0, 2.0 * lost - 1.0])
        return weight * parts + 0.0 * found  # NaN and infinite losses show

    size = _choose_chunk(chunk, EVALUATED, records, padded)
    device = next((one.device for one in state.values()), records[0].device)
    chunks = _chunks((weights, *map(_widen, records)), None, size, device, padded or 0)
    with torch.no_grad(), _in_small_steps():
        rows = [one for (one,) in _pieces(lambda chunk: (vmap(row)(*chunk),), chunks, spare, True)]
    return total.add(torch.cat(rows), ids) if rows else total


def scored_sum(
    model: nn.Module,
    inputs: Any,
    targets: Any,
    scoring: Scoring,
    *,
    score: Loss | None = None,
    by: Any = None,
    group: Any = None,
    chunk: int | None = None,
    padded: int | None = None,
) -> ClippedTotal:
    """The exact total of the rows of an evaluation: ``scoring.read`` reads the decoded mean.

    A record whose score is no number, or whose target is none, counts as zeros, and a patient's
    records (``group``) as their mean.

    Parameters
    ----------
    model, inputs, targets, group, chunk, padded
        As for ``clipped_sum``. The model is run in the mode that it is in, with float64 numbers.
    scoring : Scoring
        Its kind "outcomes" takes one logit, or two outputs, and targets 0 or 1; "classes" takes an
        output for each class and classes as targets; "score" takes ``score``.
    score : callable, optional
        ``score(outputs, targets)`` of a batch, from 0 to 1 and without jumps.
    by : sequence, optional
        The level that each record is in, if ``scoring`` has levels.

    >>> model = nn.Linear(3, 1)
    >>> total = scored_sum(model, torch.eye(3), torch.tensor([0, 1, 1]), Scoring())
    >>> total.dimension, total.rows
    (128, 3)
    """
    total = ClippedTotal(scoring.dimension, 1.0)
    _check_layers(model)
    records = _as_records(inputs, targets)
    count = len(records[-1])
    if (score is None) != (scoring.kind != "score") or (by is None) != (not scoring.levels):
        raise ValueError(
            "score goes with Scoring(kind='score') and by with levels: give both or neither"
        )
    ids = np.arange(count) if group is None else as_group(group, count)
    _, patients, counts = np.unique(ids, return_inverse=True, return_counts=True)
    places = scoring.places(ids if by is None else by)
    records = (torch.from_numpy(counts[patients]), torch.from_numpy(places), *records)
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    state = {name: _widen(one.detach()) for name, one in state.items()}

    def judge(*record: Tensor) -> tuple[Tensor, Tensor]:
        *arguments, target = record
        outputs = functional_call(model, state, tuple(one[None] for one in arguments))
        if score is not None:
            rated = score(outputs, target[None]).double().mean().clamp(0.0, 1.0)
            return rated, torch.ones_like(rated)
        return _judge(outputs, target[None], scoring.kind)

    def rows(chunk: Rows) -> Rows:
        shares, places, *records = chunk
        scores, outcomes = (one.cpu().numpy() for one in vmap(judge)(*records))
        found = scoring.rows(scores, outcomes, places.cpu().numpy())
        return (torch.from_numpy(found / np.maximum(shares.cpu().numpy(), 1)[:, None]),)

    spare = ClippedTotal(total.dimension, 1.0) if padded else None
    size = _choose_chunk(chunk, total.dimension, records, padded)
    device = next((one.device for one in state.values()), records[-1].device)
    chunks = _chunks(tuple(map(_widen, records)), None, size, device, padded or 0)
    with torch.no_grad(), _in_small_steps():
        found = [one for (one,) in _pieces(rows, chunks, spare, True)]
    return total.add(torch.cat(found), ids) if found else total


def check_scores(
    model: nn.Module, inputs: Any, targets: Any, scoring: Scoring, *, score: Loss | None = None
) -> None:
    """Try the evaluation on a dummy record: ``ValueError`` for what would fail or say nothing.

    Call it before anything is charged. ``inputs`` and ``targets`` hold at least one record, whose
    shape and type alone are taken: the dummy is all zeros.
    """
    *parts, last = (one.new_zeros(1, *one.shape[1:]) for one in _as_records(inputs, targets))
    options: Any = {"score": score, "by": scoring.levels[:1] or None, "chunk": _LEAST}
    total = scored_sum(model, tuple(parts), last, scoring, **options)
    if not total.values.any():
        raise ValueError("score of a dummy record of zeros is no number from 0 to 1: check it")


def _judge(outputs: Tensor, targets: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """The score of one record and its outcome."""
    if kind == "classes":
        fits = outputs.dim() >= 2 and outputs.shape[1] >= 2 and not targets.is_floating_point()
        if not fits or targets.shape != (1, *outputs.shape[2:]):
            raise ValueError(
                "Scoring(kind='classes') needs an output for each of several classes and a class "
                f"as target, got {tuple(outputs.shape[1:])} and {tuple(targets.shape[1:])}"
            )
        likeliest = outputs.softmax(1).amax(1).mean()
        return likeliest, _right_answers(outputs, targets).mean()
    if outputs.numel() not in (1, 2) or targets.numel() != 1:
        raise ValueError(
            "Scoring(kind='outcomes') needs one logit or two outputs and one target 0 or 1, got "
            f"{outputs.numel()} outputs and {targets.numel()} targets: for more classes use "
            "kind='classes', for others kind='score' and a score function"
        )
    flat = outputs.reshape(-1)
    chance = flat.sigmoid()[0] if len(flat) == 1 else flat.softmax(0)[1]
    return chance, targets.double().reshape(())


def _widen(values: Tensor) -> Tensor:
    return values.double() if values.is_floating_point() else values


def _right_answers(outputs: Tensor, targets: Tensor) -> Tensor:
    """1 where the target's output is the largest, 0 where it is not, and between where it is near.

    A jump would let another record of the batch, which moves the last digits, turn an answer.
    """
    classes = torch.arange(outputs.shape[1], device=outputs.device)
    is_own = classes.reshape(-1, *[1] * (outputs.dim() - 2)) == targets[:, None]
    own, other = (outputs.masked_fill(mask, -math.inf).amax(1) for mask in (~is_own, is_own))
    return ((own - other) / _JUMP).clamp(-1.0, 1.0) / 2.0 + 0.5


@contextmanager
def _in_small_steps() -> Iterator[None]:
    """Attention by matrix products and softmax: of its fused kernels vmap has no rule."""
    is_fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH), _InWholeLines():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(is_fused)


class _InWholeLines(TorchFunctionMode):
    """Linear layers on the CPU are filled up with zeros: every row begins a cache line.

    Its library rounds the products of a row by its address, and with that by its place in a chunk.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        chosen = _linear if func is functional.linear else func
        return chosen(*args, **(kwargs or {}))


def _linear(
    input: Tensor,  # noqa: A002 (PyTorch's name, which a model may give)
    weight: Tensor,
    bias: Tensor | None = None,
) -> Tensor:
    if input.device.type != "cpu" or weight.dim() != 2 or not any(_missing(weight)):
        return functional.linear(input, weight, bias)
    classes, width = _missing(weight)
    filled = functional.pad(weight, (0, width, 0, classes))
    found = functional.linear(functional.pad(input, (0, width)), filled)[..., : len(weight)]
    return found if bias is None else found + bias.to(found.dtype)


def _missing(weight: Tensor) -> tuple[int, int]:
    """Rows and columns that fill up whole cache lines."""
    line = _LINE // weight.element_size()
    return -weight.shape[0] % line, -weight.shape[1] % line


def _entries_made(parameter: Tensor) -> int:
    """Entries of a record's gradient while it is computed: that of a linear layer is filled up."""
    if parameter.dim() != 2 or parameter.device.type != "cpu":
        return parameter.numel()
    rows, columns = _missing(parameter)
    return (parameter.shape[0] + rows) * (parameter.shape[1] + columns)


def _check_layers(model: nn.Module) -> None:
    """Refuse layers that mix the records of a batch, remember them, or draw at random."""
    for name, layer in model.named_modules():
        where = f"model: layer {name!r} ({type(layer).__name__})"
        if isinstance(layer, _BATCH_NORMS) and (layer.training or layer.running_mean is None):
            raise ValueError(
                f"{where} mixes the records of a batch: use nn.GroupNorm, or running statistics "
                "and model.eval()"
            )
        if isinstance(layer, _INSTANCE_NORMS) and layer.training and layer.track_running_stats:
            raise ValueError(f"{where} remembers records: use nn.GroupNorm or model.eval()")
        chance = layer.p if isinstance(layer, _DROPOUTS) else getattr(layer, "dropout", 0.0)
        if layer.training and isinstance(chance, float) and chance > 0.0:
            raise ValueError(
                f"{where} draws from a generator that records share: set it to 0 or model.eval()"
            )


def as_records(values: Any) -> Tensor:
    """One record in each entry of the first axis, also of a list of tensors."""
    is_list = isinstance(values, list) and any(isinstance(one, Tensor) for one in values)
    try:
        return torch.stack(values) if is_list else torch.as_tensor(values)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"records must be numbers of one shape, one entry each: {error}") from None


def _as_records(inputs: Any, targets: Any) -> Rows:
    """All arguments of the model, then the targets, of one length."""
    parts = (*inputs, targets) if isinstance(inputs, tuple) else (inputs, targets)
    found = tuple(as_records(part).detach() for part in parts)
    lengths = [len(part) if part.dim() else None for part in found]
    if len(found) < 2 or None in lengths or len(set(lengths)) > 1:
        raise ValueError(
            f"inputs and targets must hold one entry for each record, got lengths {lengths}: "
            "stack the records along the first axis"
        )
    return found


def _choose_chunk(chunk: int | None, entries: int, records: Rows, padded: int | None) -> int:
    if chunk is None:
        sizes = [math.prod(part.shape[1:]) * part.element_size() for part in records]
        fitting = min(_ROW_BYTES // (4 * entries), _INPUT_BYTES // max(1, sum(sizes)), _MOST)
        fitting = max(fitting // _LEAST, 1) * _LEAST
        if not padded:
            return fitting
        calls = -(-padded // fitting)
        return -(-padded // (calls * _LEAST)) * _LEAST  # equal chunks
    found: int = as_annotated("chunk", "int", chunk)
    if found < _LEAST:
        raise ValueError(f"chunk must be at least {_LEAST}, got {chunk}")
    return found


def _with_checked_labels(loss: Loss) -> Loss:
    """The loss, NaN where PyTorch would stop at a label that is no class."""
    kind = loss.func if isinstance(loss, partial) else loss
    if kind not in _CLASS_LOSSES and not isinstance(kind, _CLASS_LOSS_MODULES):
        return loss
    named = loss.keywords if isinstance(loss, partial) else {}
    ignored = named.get("ignore_index", getattr(kind, "ignore_index", -100))

    def checked(outputs: Tensor, targets: Tensor) -> Tensor:
        if targets.is_floating_point():
            return loss(outputs, targets)
        is_bad = ((targets < 0) | (targets >= outputs.shape[1])) & (targets != ignored)
        return loss(outputs, targets.masked_fill(is_bad, 0)) * torch.where(
            is_bad.any(), torch.nan, 1.0
        )

    return checked


def _gradients(model: nn.Module, loss: Loss, trained: dict[str, Tensor]) -> Callable[[Rows], Rows]:
    """How a chunk of records becomes gradients, one for each."""
    others = {name: p.detach() for name, p in model.named_parameters() if name not in trained}
    others |= {name: buffer.clone() for name, buffer in model.named_buffers()}

    def loss_of(outputs: Tensor, target: Tensor) -> Tensor:
        return loss(outputs, target[None]).reshape(())

    def loss_at(parameters: dict[str, Tensor], *record: Tensor) -> Tensor:
        *arguments, target = record
        batch = tuple(one[None] for one in arguments)
        return loss_of(functional_call(model, parameters | others, batch), target)

    kept: list[Tensor] = []  # the rows of one chunk: new memory for each would cost a fifth more

    def by_model(chunk: Rows) -> Rows:
        found = vmap(grad(loss_at), in_dims=(None, *[0] * len(chunk)))(trained, *chunk)
        parts = [one.flatten(1) for one in found.values()]
        if kept:
            torch.cat(parts, dim=1, out=kept[0])
        else:
            kept.append(torch.cat(parts, dim=1))
        return (kept[0],)

    split = _linear_head(model)
    if split is None:
        return by_model
    body, head = split
    state = {name: t.detach() for name, t in body.named_parameters()}
    state |= {name: buffer.clone() for name, buffer in body.named_buffers()}

    def by_head(chunk: Rows) -> Rows:
        *arguments, targets = chunk
        features = vmap(lambda *one: functional_call(body, state, tuple(x[None] for x in one))[0])(
            *arguments
        )
        if features.dim() != 2:
            return by_model(chunk)
        outputs = functional.linear(features, head.weight.detach(), head.bias)
        slopes = vmap(grad(lambda one, target: loss_of(one[None], target)))(
            outputs.detach(), targets
        )
        if not head.weight.requires_grad:
            return (slopes,)
        has_bias = head.bias is not None and head.bias.requires_grad
        return slopes, features, slopes if has_bias else slopes[:, :0]

    return by_head


def _linear_head(model: nn.Module) -> tuple[nn.Module, nn.Linear] | None:
    """The frozen body and the linear layer of a model that is nothing else."""
    layers = list(model) if type(model) is nn.Sequential else [model]
    body, head = nn.Sequential(*layers[:-1]), layers[-1] if layers else model
    # weights that hooks or other parameters make are left to autograd
    has_hooks = any(one._forward_hooks or one._forward_pre_hooks for one in (model, head))
    if type(head) is not nn.Linear or has_hooks or any(p.requires_grad for p in body.parameters()):
        return None
    return body, head


def _chunks(
    records: Rows, order: Any, size: int, device: torch.device, least: int
) -> Iterator[tuple[int, Rows]]:
    """(How many count, records), always ``size`` of them: zeros fill up.

    There are chunks for ``least`` records, if there are fewer.
    """
    count = len(records[0])
    if not count:
        records, order = tuple(part.new_zeros(1, *part.shape[1:]) for part in records), None
    for first in range(0, max(count, least), size):
        places = np.minimum(np.arange(first, first + size), len(records[0]) - 1)
        chosen = torch.from_numpy(places if order is None else order[places])
        chunk = tuple(part[chosen.to(part.device)].to(device) for part in records)
        counted = max(0, min(size, count - first))
        for part in chunk:
            part[counted:] = 0  # no copy of a record that PyTorch may stop at
        yield counted, chunk


def _pieces(
    compute: Callable[[Rows], Rows],
    chunks: Iterator[tuple[int, Rows]],
    spare: ClippedTotal | None,
    is_grouped: bool,
    is_recorded: bool = False,
) -> Iterator[Rows]:
    """The gradients of all records, in order, as rows where ``_add`` needs them; a piece is
    overwritten by the next.

    What fills up a chunk goes to a total that nobody reads, if there is one: the same work.
    """
    lasts, kept = list[Tensor](), list[Tensor]()
    for count, chunk in chunks:
        if is_recorded:
            compute, is_recorded = _record(compute, chunk), False
        found = _compute_all(compute, chunk)
        lasts.append(found[0][:count, -1].clone())  # without a finite loss it is not finite
        if spare is None:
            found = tuple(part[:count] for part in found)
        left, is_whole = count, len(found) == 1 or (not is_grouped and _can_multiply(found))
        for piece in [found] if is_whole else _outer(found, kept):
            here = min(left, len(piece[0]))
            left -= here
            if spare is not None:
                rest = tuple(part[here:] for part in piece)
                _add(spare, rest, spare.rows + np.arange(len(rest[0])) if is_grouped else None)
            if here:
                yield tuple(part[:here] for part in piece)
    bad = int((~torch.isfinite(torch.cat(lasts))).sum()) if lasts else 0
    if bad:
        told = "%d of the %d records in this sample have no finite loss and count as zeros"
        _LOG.warning(told, bad, sum(map(len, lasts)))


def _record(compute: Callable[[Rows], Rows], chunk: Rows) -> Callable[[Rows], Rows]:
    """The same work as a CUDA graph: starting its kernels one by one takes longer than they do.

    Work that no graph holds stays as it is.
    """
    given, graph = tuple(part.clone() for part in chunk), torch.cuda.CUDAGraph()
    now = torch.cuda.current_stream(given[0].device)
    aside = torch.cuda.Stream(given[0].device)  # type: ignore[no-untyped-call]
    aside.wait_stream(now)
    try:
        with torch.cuda.stream(aside):
            compute(given)  # libraries choose their algorithms
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                found = compute(given)
            finally:
                graph.capture_end()
    except Exception:
        return compute
    finally:
        now.wait_stream(aside)

    def replay(chunk: Rows) -> Rows:
        for place, part in zip(given, chunk, strict=True):
            place.copy_(part)
        graph.replay()
        return found

    return replay


def _compute_all(compute: Callable[[Rows], Rows], chunk: Rows) -> Rows:
    """The gradients of a chunk, NaN for records that PyTorch stops at."""
    try:
        return compute(chunk)
    except Exception:  # of a record, or of all: zeros tell
        blank = tuple(torch.zeros_like(part) for part in chunk)
    try:
        like = compute(blank)
    except Exception as error:
        raise ValueError(
            f"model, loss or score cannot be run for one record at a time ({error}): random and "
            "in-place operations have to go, or model.eval() switches them off"
        ) from error
    found = tuple(torch.full_like(part, torch.nan) for part in like)
    _settle(compute, chunk, slice(0, len(chunk[0])), found)
    return found


def _settle(compute: Callable[[Rows], Rows], chunk: Rows, some: slice, found: Rows) -> None:
    """Fill in the gradients of some records, halving while one of them stops PyTorch."""
    alone = tuple(torch.zeros_like(part) for part in chunk)
    for mine, all_of_them in zip(alone, chunk, strict=True):
        mine[some] = all_of_them[some]
    try:
        rows = compute(alone)
    except Exception:
        middle = (some.start + some.stop) // 2
        if middle > some.start:
            _settle(compute, chunk, slice(some.start, middle), found)
            _settle(compute, chunk, slice(middle, some.stop), found)
        return
    for into, part in zip(found, rows, strict=True):
        into[some] = part[some]


def _can_multiply(found: Rows) -> bool:
    """Whether compiled loops make the rows of a linear layer."""
    are_narrow = all(one.device.type == "cpu" and one.dtype == torch.float32 for one in found)
    return are_narrow and kernels.are_loaded()


def _add(total: ClippedTotal, piece: Rows, group: Any = None) -> None:
    """Add rows, or what they are the products of."""
    if len(piece) == 1:
        total.add(piece[0], group)
    else:
        total.add_products(*(one.detach().numpy() for one in piece))


def _outer(products: Rows, kept: list[Tensor]) -> Iterator[Rows]:
    """The rows of a linear layer, some at a time: all of a chunk could be too many for a cache.

    ``kept`` holds their memory from chunk to chunk.
    """
    slopes, features, bias = products
    classes, width = slopes.shape[1], features.shape[1]
    dimension = classes * width + bias.shape[1]
    entries = _HOST_PIECE if slopes.device.type == "cpu" else _DEVICE_PIECE
    step = max(1, min(len(slopes), entries // dimension))
    if not kept or len(kept[0]) < step:
        kept[:] = [slopes.new_empty(step, dimension)]
    (rows,) = kept
    for first in range(0, len(slopes), step):
        some = slice(first, first + step)
        piece = rows[: len(slopes[some])]
        weights = piece[:, : classes * width].view(-1, classes, width)
        torch.mul(slopes[some, :, None], features[some, None, :], out=weights)
        piece[:, classes * width :] = bias[some]
        yield (piece,)


def _add_groups(total: ClippedTotal, ids: Any, pieces: Iterator[Tensor]) -> None:
    """Add rows whose ascending ``ids`` say which belong together; a group may span pieces."""
    at, last = 0, None  # the group of the last row, whose sum is still open
    summed = torch.empty(0)
    for rows in pieces:
        names = ids[at : at + len(rows)]
        at += len(rows)
        begin = 0 if last is None else int(np.searchsorted(names, last, side="right"))
        for row in rows[:begin]:
            summed += row
        if begin == len(rows):
            continue
        if last is not None:
            total.add(summed[None], [last])
        end = int(np.searchsorted(names, names[-1]))
        total.add(rows[begin:end], names[begin:end])
        last, summed = int(names[-1]), torch.zeros_like(rows[end], dtype=torch.float64)
        for row in rows[end:]:
            summed += row
    if last is not None:
        total.add(summed[None], [last])
