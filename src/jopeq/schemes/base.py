"""``Scheme``: what every scheme offers. ``schemes.codec`` does the work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, overload

import numpy as np

from jopeq.privacy.guarantee import Guarantee
from jopeq.random.streams import PrivateStream, openssl
from jopeq.schemes.codec import Codec, Counts, OnInvalid, keep_memory
from jopeq.schemes.opened import Opened
from jopeq.schemes.parameters import as_annotated, inherit_parameter_docs, spec_of
from jopeq.wire.payload import MAX_TENSORS

MORE_TENSORS = 16  # than expected are still read, so that the error can name one


@dataclass(frozen=True, kw_only=True)
class Scheme(ABC):
    """Encode, decode, guarantee. Immutable, hashable, picklable, safe to share among threads.

    Running means and variances of a state's normalisation layers have a public clip of 1, in the
    coordinates of ``jopeq.state_update``.

    Parameters
    ----------
    clip : float, optional
        Public bound on the Euclidean norm of a sample of L entries. Without ``clip`` the paper's
        norm scaling applies: one scaled unit is ``spread``·‖h‖/√M for M samples, and the norm
        travels in the clear. ``scheme(…, clip="layers")`` is per="layers" with a clip to start
        from.
    spread : float, default 3.0
        Width of the norm scaling. Ignored where ``clip`` is given.
    per : {"update", "tensor", "layers"}, default "update"
        Whether the whole update has one scale, or each tensor of a state its own. "layers" gives
        each tensor a public clip: ``clip`` until ``with_clips`` sets others (``LayerClips``).
    center : bool, default False
        Subtract the mean before scaling. The mean travels in the clear.
    """

    name: ClassVar[str]
    is_private: ClassVar[bool] = True  # whether the scheme names an ε; encoding is then total

    clip: float | None = None
    spread: float = 3.0
    per: Literal["update", "tensor", "layers"] = "update"
    center: bool = False
    clips: tuple[tuple[str, float], ...] = field(default=(), init=False)

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        inherit_parameter_docs(cls)

    def __post_init__(self) -> None:
        for each in fields(self):  # so that 4 and 4.0 make equal schemes with equal specs
            if each.init:
                value = as_annotated(each.name, str(each.type), getattr(self, each.name))
                object.__setattr__(self, each.name, value)
        self.codec.scaling  # noqa: B018 (validates its parameters)
        if self.is_private or self.codec.has_dither:  # so that the first update does not wait
            openssl()
            keep_memory()

    # What is known before any update

    @property
    def dimension(self) -> int:
        """L: entries in one sample."""
        return 1

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """The proven privacy of one sample, against the server."""

    @property
    @abstractmethod
    def distortion(self) -> float:
        """Mean squared error per entry in scaled units, at the centre of the ball."""

    @property
    @abstractmethod
    def bits_per_entry(self) -> float:
        """Bits that the body of a payload spends per entry."""

    @property
    @abstractmethod
    def codec(self) -> Codec[Any]:
        """The engine that encodes and decodes: make it once, as a ``cached_property``."""

    def bias(self) -> float:
        """E[decoded] − x at the edge of the ball, outwards: exact on Z, over fixed draws else."""
        return self.codec.bias()

    @cached_property
    def spec(self) -> str:
        """Name and parameters that are not defaults, as JSON: the scheme as a payload names it."""
        return spec_of(self)

    def guarantee_for(self, dimension: int) -> Guarantee:
        """The proven privacy of a whole update of ``dimension`` entries, against the server."""
        return self.guarantee.for_update(dimension)

    def cost(self, sizes: Mapping[str, int]) -> Guarantee:
        """The cost of one payload of tensors with these numbers of entries, against the server.

        >>> from jopeq import scheme
        >>> sizes = {"weight": 200, "bias": 10}
        >>> scheme("laplace", epsilon=4.0, clip=0.1).cost(sizes).epsilon
        840.0
        """
        cost = self.guarantee
        return cost.for_update(sum(sizes.values())) if cost.unit == "sample" else cost

    def with_clips(self, clips: Mapping[str, float]) -> Self:
        """The scheme with a public clip for each tensor, where ``per="layers"``.

        Both ends set the same clips before an update is looked at. A payload with any other clips
        is refused.

        >>> from jopeq import scheme
        >>> scheme("response", epsilon=4.0, rate=2.0, clip="layers").with_clips({"w": 0.5}).clips
        (('w', 0.5),)
        """
        if self.per != "layers":
            raise ValueError(f"with_clips needs per='layers', this scheme has per={self.per!r}")
        bound = replace(self)
        rounded = tuple((name, float(np.float32(clip))) for name, clip in clips.items())
        object.__setattr__(bound, "clips", rounded)
        del bound.__dict__["codec"]  # its scale was that of other clips
        bound.codec.scaling  # noqa: B018 (validates the clips)
        return bound

    # Updates and payloads

    @overload
    def encode(
        self,
        update: Any,
        *,
        seed: bytes | None = None,
        secret: bytes | None = None,
        noise: PrivateStream | None = None,
        on_invalid: OnInvalid | None = None,
        counts: Literal[False] = False,
    ) -> bytes: ...

    @overload
    def encode(
        self,
        update: Any,
        *,
        seed: bytes | None = None,
        secret: bytes | None = None,
        noise: PrivateStream | None = None,
        on_invalid: OnInvalid | None = None,
        counts: Literal[True],
    ) -> tuple[bytes, Counts]: ...

    def encode(
        self,
        update: Any,
        *,
        seed: bytes | None = None,
        secret: bytes | None = None,
        noise: PrivateStream | None = None,
        on_invalid: OnInvalid | None = None,
        counts: bool = False,
    ) -> bytes | tuple[bytes, Counts]:
        """The payload of an update or a state; ``decode`` is the inverse.

        An update is a float array or tensor of any shape. A state is a mapping of them, such as
        ``state_update`` makes of two ``state_dict()``s. Integer and boolean arrays of a state are
        not sent.

        ``secret`` (32 bytes, agreed once) hides the dither from everyone else; without it the
        payload carries its own fresh seed. ``seed`` fixes that seed (or the nonce) and ``noise``
        the noise: for tests only, since randomness that repeats is not private. ``counts=True``
        returns (payload, ``Counts``): what happened to the entries, for this client's eyes.

        A scheme that names an ε encodes whatever the floats are, since a refusal would tell about
        them: NaN counts as 0, ±inf and too large entries as ±``clip``, or with norm scaling as ± a
        fixed bound (``Scaling.limits``). Such entries are logged here and counted in
        ``Counts.invalid``. ``on_invalid="raise"`` raises ``UpdateError`` instead, for trusted
        use within one process; it is the default of the schemes without ε.

        >>> from jopeq import scheme
        >>> private = scheme("response", epsilon=4.0, rate=2.0, clip=0.5)
        >>> private.encode(np.array([np.nan, 0.1]), counts=True)[1].invalid
        1
        """
        codec = self.codec
        limits = codec.limits(on_invalid)
        entries = codec.read(update)
        payload, counted = codec.encode(entries, limits, seed=seed, secret=secret, noise=noise)
        return (payload, counted) if counts else payload

    def decode(
        self, payload: bytes, *, like: Any = None, secret: bytes | None = None, device: Any = None
    ) -> Any:
        """The update or the state in a payload; raises ``PayloadError``.

        An update is a float32 array, or a torch tensor on ``device``; a state is a dict of them.

        ``like`` is an update or a state with the layout that you expect. The result has its names,
        shapes, types and devices; integer and boolean arrays of a state are 0, since no update
        changes them. Any other layout raises ``StateMismatchError`` before the body is decoded.
        Without ``like`` the payload chooses names and shapes: give ``like`` where you do not trust
        the sender. A payload that is sent again decodes again.

        >>> from jopeq import scheme
        >>> state = {"weight": np.ones((2, 3), np.float32), "steps": np.array(7)}
        >>> payload = scheme("none").encode(state)
        >>> list(scheme("none").decode(payload)), list(scheme("none").decode(payload, like=state))
        (['weight'], ['weight', 'steps'])
        """
        codec = self.codec
        if like is None:
            opened = codec.open(payload, secret, MAX_TENSORS)
            return opened.header.arrange(codec.decode(opened, device))
        if device is not None:
            raise ValueError("like says on which device the result lies: drop device")
        state = like if isinstance(like, Mapping) else {"": like}
        result = codec.open(payload, secret, len(state) + MORE_TENSORS).decode_like(state)
        return result if isinstance(like, Mapping) else result[""]

    def open(
        self, payload: bytes, *, secret: bytes | None = None, most_tensors: int = MAX_TENSORS
    ) -> Opened:
        """Verify a payload and read its header, without decoding; raises ``PayloadError``.

        ``most_tensors`` is how many you expect. The checksum, and the tag where ``secret`` is
        given, are verified before anything is read. The tag does not detect replay: a recorded
        payload that somebody sends again is accepted again. Every keyed payload has its own nonce,
        ``header.seed``: remember those you accepted and refuse their copies, or change the secret
        every round.

        >>> from jopeq import scheme
        >>> opened = scheme("sdq", rate=2.0).open(scheme("sdq", rate=2.0).encode(np.ones((2, 3))))
        >>> opened.header.shapes, len(opened.header.seed), opened.decode().shape
        (((2, 3),), 32, (6,))
        """
        return self.codec.open(payload, secret, most_tensors)
