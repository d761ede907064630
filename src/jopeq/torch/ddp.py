"""A communication hook for ``DistributedDataParallel``: every gradient bucket becomes a payload.

    each rank   payload = encode(gradient bucket)
    all ranks   exchange the lengths, then the payloads
    each rank   gradient bucket = mean of all decoded payloads, its own among them

All ranks decode the same bytes in the order of ranks and add them up in float64, so all end with
the same bits. The adversary is "server": whoever sees the payloads, that is, every other rank.
Encoding and decoding happen on the host: gradients on a GPU are copied there and back.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from jopeq.errors import PayloadError, UpdateError
from jopeq.privacy import Guarantee
from jopeq.schemes.base import Scheme
from jopeq.schemes.state import decode_state, encode_state

Vector = NDArray[np.float32]
Bucket = Any  # a torch.distributed.GradBucket, which torch's own stubs leave out

_LENGTH_BYTES = 8  # the message that precedes a payload: its length, or −1 if there is none
_FAILED = -1
_MOST_BYTES = 16, 1 << 20  # of a payload, for each entry or tensor and besides: twice any scheme's


@dataclass(frozen=True)
class Traffic:
    """Payloads and bytes that one rank has sent so far, measured."""

    payloads: int = 0
    entries: int = 0
    payload_bytes: int = 0
    bytes_sent: int = 0  # with the lengths that go ahead and the padding to the longest payload

    @property
    def bits_per_entry(self) -> float:
        """Bits of payload for each gradient entry, headers included."""
        return 8.0 * self.payload_bytes / self.entries if self.entries else 0.0


def ddp_hook(
    scheme: Scheme, *, process_group: dist.ProcessGroup | None = None, error_feedback: bool = False
) -> DDPHook:
    """A hook that sends gradients through ``scheme``; ``attach`` it to one model on every rank.

    ``process_group`` carries the payloads, by default the model's own group. With a model on GPUs
    and NCCL, a gloo group of the same ranks keeps the payloads off the GPU.

    ``error_feedback=True`` keeps the error of a step's payload and adds it to the next gradient
    (Seide et al. 2014; Karimireddy et al. 2019), for ``sdq`` with norm scaling alone:

        x = gradient + e      sent Q(x)      decoded a·Q(x)      e ← x − a·Q(x)      a = 1/(1 + ω)

    With ω = E‖Q(x) − x‖²/‖x‖² = L·spread²·distortion, that a makes the least error, ω/(1+ω)·‖x‖².
    At a = 1 the memory e would grow without bound wherever ω ≥ 1, as at R = 1 and spread 3: ω = 3.
    Private schemes refuse it: e holds the raw gradient, so a payload would depend on the raw
    gradients of all earlier steps too, and an ε counted once per payload would be wrong.

    >>> import jopeq
    >>> ddp_hook(jopeq.scheme("sdq", rate=4.0)).guarantee_of(1000).epsilon
    inf
    >>> ddp_hook(jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=0.1), error_feedback=True)
    Traceback (most recent call last):
    ...
    ValueError: error_feedback=True carries raw gradients into later payloads, which the ε of \
scheme 'response' does not count: drop error_feedback or use scheme 'sdq'
    """
    return DDPHook(scheme, process_group, error_feedback)


class DDPHook:
    """The state of one rank's hook: its scheme, its error memory, and its traffic.

    A scheme that names an ε encodes every gradient, since a rank that stops would tell the others
    about its gradient: NaN counts as 0, infinity and too large entries as the clip (see
    ``Scheme.encode``). A bucket is charged before its entries are read. Schemes without ε raise
    ``UpdateError`` for such a gradient on all ranks, in the same backward pass, and no rank's
    gradient bucket changes. Wrap the model anew afterwards: DDP does not resume a backward pass
    that broke off.
    """

    def __init__(
        self, scheme: Scheme, process_group: dist.ProcessGroup | None, error_feedback: bool
    ) -> None:
        if not isinstance(scheme, Scheme):
            raise ValueError(
                f"scheme must be a jopeq scheme, got {scheme!r}: make one with "
                "jopeq.scheme('sdq', rate=4.0)"
            )
        if not (process_group is None or isinstance(process_group, dist.ProcessGroup)):
            raise ValueError(
                "process_group must be a group that this rank is in, or None for the model's own, "
                f"got {process_group!r}"
            )
        if not isinstance(error_feedback, bool):
            raise ValueError(f"error_feedback must be True or False, got {error_feedback!r}")
        if error_feedback:
            _check_feedback(scheme)
        self.scheme = scheme
        self.process_group = process_group
        self.error_feedback = error_feedback
        self.traffic = Traffic()
        self.guarantees: dict[int, Guarantee] = {}  # of one payload of each bucket, by its index
        self._sent: Counter[int] = Counter()  # how many payloads of so many entries
        self._residuals: dict[torch.Tensor, Vector] = {}  # by parameter: DDP regroups its buckets
        self._shrink = 1.0 / (1.0 + relative_error(scheme)) if error_feedback else 1.0
        self._is_attached = False

    def __repr__(self) -> str:
        return f"DDPHook({self.scheme!r}, error_feedback={self.error_feedback}, {self.traffic})"

    def attach(self, model: DistributedDataParallel) -> DDPHook:
        """Send this model's gradients through the scheme from now on; returns the hook."""
        if not isinstance(model, DistributedDataParallel):
            raise ValueError(
                f"model must be a DistributedDataParallel, got a {type(model).__name__}: wrap it"
            )
        if self._is_attached:
            raise ValueError("this hook is attached to a model: make one with ddp_hook for each")
        group = model.process_group if self.process_group is None else self.process_group
        ranks, expected = map(dist.get_process_group_ranks, (group, model.process_group))
        if sorted(ranks) != sorted(expected):
            raise ValueError(
                f"process_group holds the ranks {ranks}, the model those of {expected}: "
                "leave process_group out, or give a group of the same ranks"
            )
        model.register_comm_hook(self, _on_bucket)
        self.process_group = group
        self._is_attached = True
        return self

    # Privacy

    def guarantee_of(self, entries: int) -> Guarantee:
        """The guarantee of one payload of so many entries for its rank's gradient bucket."""
        return self.scheme.guarantee_for(entries)

    @property
    def spent(self) -> Guarantee:
        """All payloads of this rank so far: ε and δ added up.

        ``spent.mechanisms.epsilon_at(delta)`` composes them by the best theorem there is.
        """
        total = Guarantee(epsilon=0.0, unit="client")
        for entries, times in self._sent.items():
            total = self.guarantee_of(entries).for_client(entries, times).together_with(total)
        return total

    # DDP calls ``_average`` once for each bucket, in the same order on all ranks

    def _average(self, bucket: Bucket) -> torch.Tensor:
        buffer = bucket.buffer()
        name = f"gradient bucket {bucket.index()} ({buffer.numel()} entries)"
        sizes = [gradient.numel() for gradient in bucket.gradients()]
        payload, problem = b"", None
        try:
            # charged before the gradient is read
            self.guarantees[bucket.index()] = self.guarantee_of(buffer.numel())
            self._sent[buffer.numel()] += 1
            update = self._with_residual(bucket)
            payload = encode_state(self.scheme, self._named(update, sizes))
        except Exception as error:  # of any kind: the other ranks wait for an answer
            problem = error
        device = _device(self.process_group, buffer)
        lengths = _gather_lengths(_FAILED if problem else len(payload), self.process_group, device)
        failed = [rank for rank, length in enumerate(lengths) if length < 0]
        if failed:
            here = f"; here: {problem}" if problem else ""
            raise UpdateError(
                f"{name} could not be encoded on rank {', '.join(map(str, failed))} of its group "
                f"and was averaged on none{here}"
            ) from problem
        _check_lengths(lengths, buffer.numel() + 8 * len(sizes), name)
        self.traffic = Traffic(
            self.traffic.payloads + 1,
            self.traffic.entries + buffer.numel(),
            self.traffic.payload_bytes + len(payload),
            self.traffic.bytes_sent + max(lengths) + _LENGTH_BYTES,
        )
        received = _gather_payloads(payload, lengths, self.process_group, device)
        own = dist.get_rank(self.process_group)
        total = np.zeros(buffer.numel())
        for rank, bytes_of_rank in enumerate(received):
            try:
                decoded = self._decode(bytes_of_rank, sizes)
            except PayloadError as error:
                raise PayloadError(f"{name} of rank {rank}: {error}") from error
            total += decoded
            if self.error_feedback and rank == own:
                self._keep_residual(bucket, update, decoded)
        mean = torch.from_numpy(total * (self._shrink / len(received))).to(buffer.dtype)
        if not bool(torch.isfinite(mean).all()):
            raise UpdateError(
                f"the average of {name} is too large for {buffer.dtype}: lower the loss scale, or "
                "keep gradients in float32 or bfloat16"
            )
        return mean

    def _named(self, update: torch.Tensor, sizes: list[int]) -> dict[str, torch.Tensor]:
        """The bucket as one update, or, where tensors are scaled one by one, as its tensors."""
        if self.scheme.per == "update":
            return {"": update}
        return {str(place): piece for place, piece in enumerate(torch.split(update, sizes))}

    def _decode(self, payload: bytes, sizes: list[int]) -> Vector:
        like = self._named(torch.empty(sum(sizes), dtype=torch.float32), sizes)
        pieces = decode_state(self.scheme, payload, like).values()
        return np.concatenate([piece.numpy() for piece in pieces])

    def _with_residual(self, bucket: Bucket) -> torch.Tensor:
        gradient: torch.Tensor = bucket.buffer().detach().cpu()
        if not self._residuals:
            return gradient
        nothing = np.float32(0.0)
        pieces = [
            np.broadcast_to(self._residuals.get(parameter, nothing), parameter.numel())
            for parameter in bucket.parameters()
        ]
        return gradient.float() + torch.from_numpy(np.concatenate(pieces))

    def _keep_residual(self, bucket: Bucket, update: torch.Tensor, decoded: Vector) -> None:
        lost = update.float().numpy() - np.float32(self._shrink) * decoded
        ends = np.cumsum([parameter.numel() for parameter in bucket.parameters()])
        pieces = np.split(lost, ends[:-1])
        self._residuals.update(zip(bucket.parameters(), pieces, strict=True))


def relative_error(scheme: Scheme) -> float:
    """ω = E‖Q(x) − x‖²/‖x‖² under norm scaling, as long as no entry overloads.

    One unit is spread·‖x‖/√M, and each of the L·M entries has ``distortion`` squared units.

    >>> import jopeq
    >>> round(relative_error(jopeq.scheme("sdq", rate=1.0)), 6)
    3.0
    """
    return scheme.dimension * scheme.spread**2 * scheme.distortion


def _check_feedback(scheme: Scheme) -> None:
    if scheme.is_private:
        raise ValueError(
            "error_feedback=True carries raw gradients into later payloads, which the ε of scheme "
            f"{scheme.name!r} does not count: drop error_feedback or use scheme 'sdq'"
        )
    if scheme.name != "sdq":
        raise ValueError(
            f"error_feedback=True is for scheme 'sdq', got {scheme.name!r}: drop error_feedback"
        )
    if scheme.clip is not None:
        raise ValueError(
            f"error_feedback=True needs norm scaling, got clip={scheme.clip}: entries beyond a "
            "fixed clip would pile up in the memory without end; drop clip"
        )


def _on_bucket(hook: DDPHook, bucket: Bucket) -> Future[torch.Tensor]:
    buffer = bucket.buffer()
    buffer.copy_(hook._average(bucket))
    future: Future[torch.Tensor] = Future(devices=None if buffer.is_cpu else [buffer.device])
    future.set_result(buffer)
    return future


_on_bucket.__annotations__ = {}  # DDP refuses annotations that are names of types


def _device(group: Any, buffer: torch.Tensor) -> torch.device:
    """Where this group exchanges payloads: on the host if the group can."""
    can_use_host = "cpu" in dist.get_backend_config(group)
    return torch.device("cpu") if can_use_host else buffer.device


def _gather_lengths(length: int, group: Any, device: torch.device) -> list[int]:
    own = torch.tensor([length], dtype=torch.int64, device=device)
    return [int(one) for one in _all_gather(own, group)]


def _check_lengths(lengths: list[int], parts: int, name: str) -> None:
    """All ranks allocate the longest length that one rank announces, so lengths have a limit."""
    each, besides = _MOST_BYTES
    most = each * parts + besides
    for rank, length in enumerate(lengths):
        if length > most:
            raise PayloadError(
                f"{name} of rank {rank}: a payload of {length} bytes is announced, at most {most} "
                "can be needed"
            )


def _gather_payloads(
    payload: bytes, lengths: list[int], group: Any, device: torch.device
) -> list[bytes]:
    padded = bytearray(payload.ljust(max(lengths), b"\0"))
    own = torch.frombuffer(padded, dtype=torch.uint8).to(device)
    gathered = _all_gather(own, group)
    return [
        one.cpu().numpy()[:length].tobytes() for one, length in zip(gathered, lengths, strict=True)
    ]


def _all_gather(own: torch.Tensor, group: Any) -> list[torch.Tensor]:
    gathered = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(gathered, own, group=group)
    return gathered
