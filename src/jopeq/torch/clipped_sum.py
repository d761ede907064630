"""The exact total of clipped gradients, one for each record, of any PyTorch model.

Every row must be a function of its own record and of public values. Records run through
``torch.func.vmap``, each as a batch of its own, so that no layer can mix two of them, draw from a
shared generator or write to a buffer. Chunks have one padded shape and records sit in random slots:
without one record its slot is blank, and no other moves to where a library would round differently.
A row may still depend on what the other slots hold; no library is known for that, and
``RecordSum.batch_dependence`` pays for a little of it.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import starmap
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._decomp import get_decompositions
from torch.func import functional_call, grad, vmap
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from jopeq import kernels
from jopeq.checks import check_count
from jopeq.statistics.evaluation import Scoring
from jopeq.sums.clipped_total import ClippedTotal
from jopeq.sums.record_sample import Indices, draw_slots
from jopeq.torch.records import Records, Rows, other_numbers, read_example, read_records

_LOG = logging.getLogger("jopeq")

Loss = Callable[[Any, Any], Tensor]
Compute = Callable[[Rows], Rows]
"""From a chunk (weights, of which 0 makes zeros, arguments of the model, targets) to (rows,), or of
a linear layer to (slopes, features, bias): products of slopes and features, then the bias."""

_ROW_BYTES, _INPUT_BYTES = 1 << 27, 1 << 24  # in a chunk, by default
_RECORDED = 3  # chunks from which a CUDA graph pays
_LEAST, _MOST = 8, 1024  # records in a chunk; matrix products round fewer than 8 in other ways
_HOST_PIECE, _DEVICE_PIECE = 1 << 21, 1 << 26  # entries of a linear layer's rows made at a time
_JUMP = 1e-6  # of outputs within which an answer is neither right nor wrong
ALIKE = 1e-5  # of a row: on a GPU sums of one layer may round differently each time

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout,
             nn.FeatureAlphaDropout)  # fmt: skip
_LOGIT_LOSS = functional.binary_cross_entropy_with_logits


def clipped_sum(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    clip: float,
    group: Any = None,
    chunk: int | None = None,
    padded: int | None = None,
    most_rows: int | None = None,
    example: Any = None,
) -> ClippedTotal:
    """The exact total of the clipped gradients of the records' losses.

    Its entries are those of the parameters that require a gradient, in the order of
    ``model.parameters()``. A record that is unlike the example, or has no finite gradient (a label
    out of range, a NaN), counts as zeros.

    Parameters
    ----------
    model : nn.Module
        Nothing in it changes. A model whose rows for the same public records differ from one call
        to the next is refused.
    loss : callable
        ``loss(outputs, targets)`` of a batch of one record, as in ``torch.nn.functional``.
        ``binary_cross_entropy_with_logits`` takes 0 and 1 of any shape and dtype.
    inputs, targets : tensors, arrays or lists
        One record in each entry of the first axis; a tuple of inputs for several arguments.
    clip : float
        Largest norm of a record's gradient, or of the summed gradients of a group.
    group : integers or texts, optional
        Whose record each is. The gradients of one patient's records are added up and clipped once.
    chunk : int, optional
        Records at a time, at least 8, to which every chunk is padded. By default at most 1,024,
        128 MiB of gradients, 16 MiB of inputs and ``padded``.
    padded : int, optional
        Public bound on the records (or patients): so many slots are computed, so that neither the
        time nor anybody's slot tells their number.
    most_rows : int, optional
        With ``group``, the public bound on a patient's records; of more, the first count.
    example : (inputs, target), optional
        One public record, with the shapes and dtypes that all must have. Without it those of the
        tensors are taken for public.

    >>> inputs, labels = torch.eye(3), torch.tensor([0, 1, 1])
    >>> total = clipped_sum(nn.Linear(3, 2), functional.cross_entropy, inputs, labels, clip=0.5)
    >>> total.dimension
    8
    """
    records = read_records(inputs, targets, example, group)
    places = records.of_patients(most_rows)
    return sum_gradients(model, loss, records, places, clip, chunk=chunk, padded=padded)


def sum_gradients(
    model: nn.Module, loss: Loss, records: Records, places: Indices, clip: float, *,
    chunk: int | None, padded: int | None,
) -> ClippedTotal:  # fmt: skip
    """``clipped_sum`` of the records at ``places``: those of one patient in each row."""
    trained = trained_of(model)
    total = ClippedTotal(sum(map(Tensor.numel, trained.values())), clip)
    size, seats = _take_seats(records, places, padded, chunk, total.dimension)
    device = next(iter(trained.values())).device
    if device.type == "cpu":
        kernels.note(len(seats) * total.dimension)  # all at once: they pay for the first chunk too
    work = _Work(model, partial(_gradients, loss, trained, []), records, device)
    is_grouped = records.owners is not None
    pieces = work.pieces((seats >= 0).astype(np.float64), seats, size, is_grouped=is_grouped)
    with _in_small_steps():
        if is_grouped:
            patients = np.arange(len(seats)) // places.shape[1]
            _add_groups(total, patients, (rows for (rows,) in pieces))
            return total
        for rows, *factors in pieces:
            if factors:  # of a linear layer
                total.add_products(*(one.detach().numpy() for one in (rows, *factors)))
            else:
                total.add(rows)
    return total


def trained_of(model: nn.Module) -> dict[str, Tensor]:
    """The parameters that train; ``ValueError`` for a model that ``clipped_sum`` refuses."""
    _check_layers(model)
    found = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            found[name] = parameter.detach()
    if not found:
        raise ValueError("model has no parameter that requires a gradient: unfreeze its head")
    return found


def count_entries(model: nn.Module) -> int:
    """Entries of a record's gradient; ``ValueError`` for a model that ``clipped_sum`` refuses."""
    return sum(map(Tensor.numel, trained_of(model).values()))


def check_model(model: nn.Module, loss: Loss, example: Any) -> int:
    """Entries of a record's gradient; ``ValueError`` for what public records show to be refused."""
    nobody = (torch.zeros(0),) * (len(read_example(example)) - 1), torch.zeros(0)
    return clipped_sum(model, loss, *nobody, clip=1.0, example=example, chunk=_LEAST).dimension


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
    most_rows: int | None = None,
    example: Any = None,
) -> ClippedTotal:
    """The exact total of the rows of an evaluation: ``scoring.read`` reads the decoded mean.

    A record whose score is no number, or whose target is none, counts as zeros, and a patient's
    records (``group``) as their mean.

    Parameters
    ----------
    model, inputs, targets, group, chunk, padded, most_rows, example
        As for ``clipped_sum``. The model is run in the mode that it is in, with float64 numbers.
    scoring : Scoring
        Its kind "outcomes" takes one logit, or two outputs, and targets 0 or 1; "classes" takes an
        output for each class and classes as targets; "score" takes ``score``.
    score : callable, optional
        ``score(outputs, targets)`` of a batch, from 0 to 1 and without jumps.
    by : sequence, optional
        The level that each record is in, if ``scoring`` has levels.
    """
    if (score is None) == (scoring.kind == "score") or (by is None) == bool(scoring.levels):
        raise ValueError(
            "score goes with Scoring(kind='score') and by with levels: give both or neither"
        )
    records = read_records(inputs, targets, example, group)
    levels = scoring.places(range(len(records.is_good)) if by is None else by)
    if len(levels) != len(records.is_good):
        raise ValueError(f"by must be one level for each of {len(records.is_good)} records")
    places = records.of_patients(most_rows)
    return sum_scores(
        model, records, places, scoring, score=score, chunk=chunk, padded=padded, levels=levels
    )


def sum_scores(
    model: nn.Module, records: Records, places: Indices, scoring: Scoring, *,
    score: Loss | None, chunk: int | None, padded: int | None, levels: Indices | None = None,
) -> ClippedTotal:  # fmt: skip
    """``scored_sum`` of the records at ``places``: those of one patient in each row."""
    _check_layers(model)
    parts, blank = (tuple(map(_widen, some)) for some in (records.parts, records.blank))
    records = replace(records, parts=parts, blank=blank)

    def judge(outputs: Tensor, targets: Tensor) -> Tensor:
        """(score, outcome) of one record."""
        if score is None:
            return _judge(outputs, targets, scoring.kind)
        rated = score(outputs, targets).double().mean().clamp(0.0, 1.0)
        return torch.stack((rated, torch.ones_like(rated)))

    total, most = ClippedTotal(scoring.dimension, 1.0), places.shape[1]
    size, seats = _take_seats(records, places, padded, chunk, total.dimension)
    patients = np.arange(len(seats)) // most
    weights = (seats >= 0) / np.maximum(np.bincount(patients, seats >= 0)[patients], 1)
    wide = {name: _widen(one.detach()) for name, one in model.named_parameters()}

    def make(module: nn.Module) -> Compute:
        state = wide | {name: _widen(one) for name, one in module.named_buffers()}

        def judge_one(*record: Tensor) -> Tensor:
            *arguments, target = record
            batch = tuple(one[None] for one in arguments)
            return judge(functional_call(module, state, batch), target[None])

        return lambda chunk: (vmap(judge_one)(*chunk[1:]),)

    device = next((one.device for one in wide.values()), parts[0].device)
    work = _Work(model, make, records, device)
    with torch.no_grad(), _in_small_steps():
        pieces = work.pieces(weights, seats, size, is_grouped=True)
        found = torch.cat([verdicts.cpu() for (verdicts,) in pieces]).numpy()
    seated = np.zeros(len(seats), np.int64) if levels is None else np.append(levels, 0)[seats]
    step = _MOST * most
    for some in (slice(first, first + step) for first in range(0, len(seats), step)):
        scores, outcomes = found[some].T
        rows = scoring.rows(scores, outcomes, seated[some])
        total.add(rows * weights[some, None], patients[some])
    return total


def check_scores(
    model: nn.Module, scoring: Scoring, example: Any, *, score: Loss | None = None
) -> None:
    """Try an evaluation on a public record: ``ValueError`` for what would fail or say nothing.

    Call it before anything is charged. ``example`` is (inputs, target), as for ``clipped_sum``.
    """
    *inputs, target = (part[None] for part in read_example(example))
    given: dict[str, Any] = {"score": score, "by": scoring.levels[:1] or None, "chunk": _LEAST}
    total = scored_sum(model, tuple(inputs), target, scoring, example=example, **given)
    if not total.values.any():
        raise ValueError(
            "the example's score is no number from 0 to 1, or its target none of the outcomes"
        )


def _judge(outputs: Tensor, targets: Tensor, kind: str) -> Tensor:
    """The score of one record and its outcome."""
    if kind == "classes":
        fits = outputs.dim() >= 2 and outputs.shape[1] >= 2 and not targets.is_floating_point()
        if not fits or targets.shape != (1, *outputs.shape[2:]):
            raise ValueError(
                "Scoring(kind='classes') needs outputs for several classes and one as target, got "
                f"{tuple(outputs.shape[1:])} and {tuple(targets.shape[1:])}"
            )
        is_bad = (targets < 0) | (targets >= outputs.shape[1])
        right = _right_answers(outputs, targets).masked_fill(is_bad, torch.nan)
        return torch.stack((outputs.softmax(1).amax(1).mean(), right.mean()))
    if outputs.numel() not in (1, 2) or targets.numel() != 1:
        raise ValueError(
            "Scoring(kind='outcomes') needs one logit or two outputs and one target 0 or 1, got "
            f"{outputs.numel()} and {targets.numel()}: see kind='classes' and kind='score'"
        )
    flat = outputs.reshape(-1)
    chance = flat.sigmoid()[0] if len(flat) == 1 else flat.softmax(0)[1]
    return torch.stack((chance, targets.to(chance.dtype).reshape(())))


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
        with sdpa_kernel(SDPBackend.MATH), _OneByOne():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(is_fused)


class _OneByOne(TorchFunctionMode):
    """Functions that PyTorch would stop at for a record, or that it cannot map over records."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        chosen = _CHOSEN.get(func)
        call = func if chosen is None else partial(chosen, func)
        return call(*args, **(kwargs or {}))


def _class_loss(func: Any, input: Tensor, target: Tensor, *more: Any, **named: Any) -> Tensor:  # noqa: A002
    """NaN for a label that is no class."""
    if target.is_floating_point():
        return func(input, target, *more, **named)  # type: ignore[no-any-return]
    ignored = named.get("ignore_index", more[2] if len(more) > 2 else -100)
    is_bad = ((target < 0) | (target >= input.shape[1])) & (target != ignored)
    found = func(input, target.masked_fill(is_bad, 0), *more, **named)
    return _nan_if(is_bad, found)


def _logit_loss(func: Any, input: Tensor, target: Tensor, *more: Any, **named: Any) -> Tensor:  # noqa: A002
    """Targets of the logits' dtype and of any shape with as many entries; NaN beyond 0 to 1."""
    logits = input.reshape(target.shape) if input.numel() == target.numel() else input
    found = func(logits, target.to(input.dtype), *more, **named)
    return _nan_if((target < 0) | (target > 1), found)


def _embedding(func: Any, input: Tensor, weight: Tensor, *more: Any, **named: Any) -> Tensor:  # noqa: A002
    """NaN for an index that is none: a GPU would stop for good."""
    is_bad = (input < 0) | (input >= len(weight))
    return _nan_if(is_bad, func(input.masked_fill(is_bad, 0), weight, *more, **named))


def _gather(func: Any, input: Tensor, dim: int, index: Tensor, *more: Any, **named: Any) -> Tensor:  # noqa: A002
    is_bad = (index < 0) | (index >= input.shape[dim])
    return _nan_if(is_bad, func(input, dim, index.masked_fill(is_bad, 0), *more, **named))


def _take(func: Any, input: Tensor, index: Tensor) -> Tensor:  # noqa: A002
    return _item(Tensor.__getitem__, input.reshape(-1), index)


def _item(func: Any, input: Tensor, index: Any) -> Tensor:  # noqa: A002
    """Tensors of whole numbers as indices of the first axes, or of those after slices."""
    parts, is_bad = list(index) if isinstance(index, tuple) else [index], list[Tensor]()
    for axis, (part, size) in enumerate(zip(parts, input.shape, strict=False)):
        if not isinstance(part, int | slice | Tensor) or part is True or part is False:
            break
        if isinstance(part, Tensor) and part.dtype not in (torch.bool, torch.uint8):
            is_outside = (part < -size) | (part >= size)
            parts[axis] = part.masked_fill(is_outside, 0)
            is_bad.append(is_outside.any())
    found = func(input, tuple(parts) if isinstance(index, tuple) else parts[0])
    return _nan_if(torch.stack(is_bad), found) if is_bad else found


def _chance_loss(func: Any, input: Tensor, target: Tensor, *more: Any, **named: Any) -> Tensor:  # noqa: A002
    is_bad = ~((input >= 0) & (input <= 1)) | ~((target >= 0) & (target <= 1))
    target = target.masked_fill(is_bad, 0).to(input.dtype)
    return _nan_if(is_bad, func(input.masked_fill(is_bad, 0.5), target, *more, **named))


def _matrix(version: Any, func: Any, matrix: Tensor, *more: Any, **named: Any) -> Tensor:
    """NaN for a matrix at which linear algebra would stop; ``version`` of the function tells."""
    is_bad = version(matrix.detach(), *more, **named)[1] != 0
    usual = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    safe = torch.where(is_bad[..., None, None], usual, matrix)
    return _nan_if(is_bad, func(safe, *more, **named))


def _nan_if(is_bad: Tensor, found: Tensor) -> Tensor:
    """NaN where anything is bad; whole numbers stay, as there is no NaN among them."""
    if not found.is_floating_point():
        return found
    return found * torch.where(is_bad.any(), torch.nan, 1.0)


def _recurrent(func: Any, *given: Any) -> Any:
    """Cells one after the other: of whole recurrent layers vmap has no rule."""
    layer = getattr(torch.ops.aten, func.__name__).input
    was_enabled = torch.backends.mkldnn.set_flags(_enabled=False)[0]  # type: ignore[no-untyped-call]
    try:
        return get_decompositions([layer])[layer](*given)
    finally:
        torch.backends.mkldnn.set_flags(_enabled=was_enabled)  # type: ignore[no-untyped-call]


_CHOSEN: dict[Any, Any] = {
    **dict.fromkeys((functional.cross_entropy, functional.nll_loss), _class_loss),
    _LOGIT_LOSS: _logit_loss,
    functional.embedding: _embedding,
    **{
        getattr(kind, name): _gather
        for kind in (torch, Tensor)
        for name in ("gather", "index_select", "scatter", "scatter_add")
    },
    **dict.fromkeys((torch.take, Tensor.take), _take),
    Tensor.__getitem__: _item,
    functional.binary_cross_entropy: _chance_loss,
    torch.linalg.cholesky: partial(_matrix, torch.linalg.cholesky_ex),
    **dict.fromkeys((torch.linalg.inv, torch.inverse), partial(_matrix, torch.linalg.inv_ex)),
    torch.linalg.solve: partial(_matrix, torch.linalg.solve_ex),
    **dict.fromkeys((torch.gru, torch.lstm, torch.rnn_tanh, torch.rnn_relu), _recurrent),
}


def _check_layers(model: nn.Module) -> None:
    """Refuse layers that mix the records of a batch, remember them, or draw at random."""
    for name, layer in model.named_modules():
        where = f"model: layer {name!r} ({type(layer).__name__})"
        if isinstance(layer, _BATCH_NORMS) and (layer.training or layer.running_mean is None):
            told = f"{where} mixes the records of a batch: use nn.GroupNorm, or running statistics"
            raise ValueError(f"{told} and model.eval()")
        if isinstance(layer, _INSTANCE_NORMS) and layer.training and layer.track_running_stats:
            raise ValueError(f"{where} remembers records: use nn.GroupNorm or model.eval()")
        chance = layer.p if isinstance(layer, _DROPOUTS) else getattr(layer, "dropout", 0.0)
        if layer.training and isinstance(chance, float) and chance > 0.0:
            raise ValueError(
                f"{where} draws from a generator that records share: set it to 0 or model.eval()"
            )


def _take_seats(
    records: Records, places: Indices, padded: int | None, chunk: int | None, entries: int
) -> tuple[int, Indices]:
    """Records in a chunk, and who sits in each slot, −1 for nobody: a patient's are neighbours."""
    rows, slots = places.shape[1], (padded or 0) * places.shape[1]
    if chunk is None:
        bytes_each = sum(map(attrgetter("nbytes"), records.blank))
        size = min(_ROW_BYTES // (4 * entries), _INPUT_BYTES // max(1, bytes_each), _MOST)
        size = max(size // _LEAST, 1) * _LEAST
        if slots:  # equal chunks
            size = -(-slots // (-(-slots // size) * _LEAST)) * _LEAST
    else:
        size = check_count("chunk", chunk, _LEAST)
    seats = np.full(-(-max(len(places), padded or 0, 1) * rows // size) * size, -1, dtype=np.int64)
    blocks = seats[: len(seats) // rows * rows].reshape(-1, rows)
    blocks[draw_slots(len(places), len(blocks))] = places
    return size, seats


def _gradients(
    loss: Loss, trained: dict[str, Tensor], kept: list[Tensor], module: nn.Module
) -> Compute:
    """How a chunk of records becomes gradients; ``kept`` has their memory from chunk to chunk."""
    others = dict(module.named_parameters()) | dict(module.named_buffers())

    def loss_of(outputs: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        return loss(outputs, target[None]).reshape(()) * weight

    def loss_at(parameters: dict[str, Tensor], weight: Tensor, *record: Tensor) -> Tensor:
        *arguments, target = record
        batch = tuple(one[None] for one in arguments)
        return loss_of(functional_call(module, others | parameters, batch), target, weight)

    def by_model(chunk: Rows) -> Rows:
        found = vmap(grad(loss_at), in_dims=(None, *[0] * len(chunk)))(trained, *chunk)
        parts = [one.flatten(1) for one in found.values()]
        if kept and len(kept[0]) == len(parts[0]):
            torch.cat(parts, dim=1, out=kept[0])
        else:
            kept[:] = [torch.cat(parts, dim=1)]
        return (kept[0],)

    # a linear layer on a frozen body, of weights that neither hooks nor other parameters make
    layers = list(module) if type(module) is nn.Sequential else [module]
    body, head = nn.Sequential(*layers[:-1]), layers[-1] if layers else module
    has_hooks = module._forward_hooks or module._forward_pre_hooks
    has_hooks = has_hooks or head._forward_hooks or head._forward_pre_hooks
    is_frozen = not any(map(attrgetter("requires_grad"), body.parameters()))
    if type(head) is not nn.Linear or has_hooks or not is_frozen:
        return by_model
    each_a_batch = partial(torch.unsqueeze, dim=1)

    def by_head(chunk: Rows) -> Rows:
        weights, *arguments, targets = chunk
        features = vmap(body)(*map(each_a_batch, arguments))[:, 0]
        if features.dim() != 2:
            return by_model(chunk)
        outputs = functional.linear(features, head.weight.detach(), head.bias).detach()
        slopes = vmap(grad(loss_of))(outputs[:, None], targets, weights)[:, 0]
        if not head.weight.requires_grad:
            return (slopes,)
        has_bias = head.bias is not None and head.bias.requires_grad
        return slopes, features, slopes if has_bias else slopes[:, :0]

    return by_head


def _copy(model: nn.Module) -> nn.Module:
    """The model's parameters in new layers, so that nothing that a call leaves behind lasts."""
    kept = dict[int, Tensor]()
    for one in model.parameters():
        kept[id(one)] = one
    for layer in model.modules():
        for one in vars(layer).values():
            if isinstance(one, Tensor) and not one.is_leaf:
                kept[id(one)] = one
    try:
        return copy.deepcopy(model, kept)
    except Exception as error:
        raise ValueError(
            f"model cannot be copied, so that its layers could remember records: {error}"
        ) from error


@dataclass(frozen=True)
class _Work:
    """Computes rows chunk by chunk, each with a fresh copy of the model."""

    model: nn.Module
    make: Callable[[nn.Module], Compute]
    records: Records
    device: torch.device

    def pieces(
        self, weights: Any, seats: Indices, size: int, *, is_grouped: bool
    ) -> Iterator[Rows]:
        """The rows of all slots, in order; a piece is overwritten by the next.

        Blank slots are the same work and have rows of zeros. Take them ``_in_small_steps``.
        """
        like, blank = self._check(), self._blank(size)
        kept, lasts = list[Tensor](), list[Tensor]()

        def compute_afresh(chunk: Rows) -> Rows:
            return self.make(_copy(self.model))(chunk)

        compute: Compute = compute_afresh
        for at in range(0, len(seats), size):
            there = torch.from_numpy(weights[at : at + size]).to(self.device)
            chunk = (there, *self._seated(seats[at : at + size], blank[1:]))
            if not at and self.device.type == "cuda" and len(seats) >= _RECORDED * size:
                compute = _record(compute, chunk)
            found = _compute_all(compute, chunk, blank, like)
            is_bad = (there > 0) & ~torch.isfinite(found[0][:, -1])
            lasts.append(is_bad)  # without a finite loss none of a row is finite
            if is_grouped:
                for part in found:  # a blank's may be NaN
                    part.masked_fill_((there == 0)[:, None], 0.0)
            can_multiply = kernels.are_loaded() and not is_grouped and self.device.type == "cpu"
            if can_multiply:  # compiled loops make the rows of a linear layer
                can_multiply = {one.dtype for one in found} == {torch.float32}
            yield from [found] if len(found) == 1 or can_multiply else _outer(found, kept)
        if bad := int(torch.cat(lasts).sum()):
            told = "%d of the %d records in this sample have no finite loss and count as zeros"
            _LOG.warning(told, bad, int((seats >= 0).sum()))

    def _blank(self, size: int) -> Rows:
        parts = [torch.zeros(size, device=self.device, dtype=torch.float64)]
        for part in self.records.blank:
            parts.append(part.to(self.device).expand(size, *part.shape).clone())
        return tuple(parts)

    def _seated(self, places: Indices, blank: Rows) -> Iterator[Tensor]:
        chosen, is_blank = torch.from_numpy(np.maximum(places, 0)), torch.from_numpy(places < 0)
        for part, empty in zip(self.records.parts, blank, strict=True):
            if len(part):
                here = part[chosen.to(part.device)].to(self.device)
                mask = is_blank.to(self.device).reshape(-1, *[1] * (here.dim() - 1))
                yield torch.where(mask, empty, here)
            else:
                yield empty

    def _check(self) -> Rows:
        """Refuse models whose rows of public records change from call to call; such rows."""
        blank, module = self._blank(_LEAST), _copy(self.model)
        compute, half = self.make(module), _LEAST // 2
        blank[0][:] = 1.0
        try:
            alone = tuple(map(Tensor.clone, compute(blank)))
        except Exception as error:
            shapes = ", ".join(f"{tuple(one.shape)} {one.dtype}" for one in self.records.blank)
            raise ValueError(
                f"model or loss takes no single record of shapes and dtypes {shapes}: {error}. "
                "Declare others by example=(inputs, target), remove operations that draw or write "
                "in place, or call model.eval()"
            ) from error
        mixed = tuple(map(Tensor.clone, blank))
        for part in mixed[1:]:
            part[:half] = other_numbers(part[:half])
        found = []
        for chunk in (mixed, blank, mixed):
            try:
                found.append(tuple(map(Tensor.clone, compute(chunk))))
            except Exception:  # of records that the model stops at
                found.append(alone)
        pairs = [*zip(self.model.buffers(), module.buffers(), strict=True)]
        for first, one, empty, again in zip(alone, *found, strict=True):
            pairs += [(one, again), (empty, first), (one[half:], empty[half:])]
        if not all(starmap(_are_alike, pairs)):
            raise ValueError(
                "model: its rows or buffers change when the same public records are computed again:"
                " remove layers and hooks that draw or remember, or call model.eval()"
            )
        return alone


def _are_alike(one: Tensor, other: Tensor) -> bool:
    """True if the numbers are equal, but for what a GPU rounds; NaN equals NaN."""
    off = 0.0 if one.device.type == "cpu" else ALIKE
    first, second = one.double(), other.double()
    length = float(first.nan_to_num().norm())
    return torch.allclose(first, second, rtol=off, atol=off * length, equal_nan=True)


def _record(compute: Callable[[Rows], Rows], chunk: Rows) -> Callable[[Rows], Rows]:
    """Record work as a CUDA graph, if one holds it: starting kernel by kernel takes longer."""
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


def _compute_all(compute: Compute, chunk: Rows, blank: Rows, like: Rows) -> Rows:
    """The gradients of a chunk; NaN for records that PyTorch stops at, which halving finds."""
    try:
        return compute(chunk)
    except Exception as error:  # of some records
        told = "PyTorch stops at a record, which makes this message late: %s; make NaN instead"
        _LOG.warning(told, str(error)[:200])
        size = len(chunk[0])
    found = tuple(part.new_full((size, *part.shape[1:]), torch.nan) for part in like)

    def settle(first: int, last: int) -> None:
        alone = tuple(part.clone() for part in blank)
        for mine, all_of_them in zip(alone, chunk, strict=True):
            mine[first:last] = all_of_them[first:last]
        try:
            rows = compute(alone)
        except Exception:
            middle = (first + last) // 2
            if middle > first:
                settle(first, middle)
                settle(middle, last)
            return
        for into, part in zip(found, rows, strict=True):
            into[first:last] = part[first:last]

    settle(0, size)
    return found


def _outer(products: Rows, kept: list[Tensor]) -> Iterator[Rows]:
    """The rows of a linear layer, as many as fit a cache; ``kept`` holds their memory."""
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
