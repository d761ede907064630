"""``Scheme``, the face of every scheme; ``schemes.codec`` does the work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, overload

import numpy as np

from jopeq.privacy.guarantee import Guarantee
from jopeq.random.streams import PrivateStream, openssl
from jopeq.schemes.codec import Codec, Counts, OnInvalid, Opened, keep_memory
from jopeq.schemes.parameters import inherit_parameter_docs, spec_of, take_annotated
from jopeq.wire.payload import MAX_TENSORS
from jopeq.wire.scaling import Scaling

MORE_TENSORS = 16  # so many unexpected tensors are still read, so that the error can name one


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
        travels in the clear. ``scheme(…, clip="layers")`` means per="layers" with a small clip to
        start from.
    spread : float, default 3.0
        Width of the norm scaling; ignored with ``clip``.
    per : {"update", "tensor", "layers"}, default "update"
        One scale for the whole update, or one for each tensor of a state. "layers" gives each
        tensor a public clip: ``clip`` until ``with_clips`` sets others (``LayerClips``).
    center : bool, default False
        Subtract the mean before scaling. The mean travels in the clear.
    """

    name: ClassVar[str]
    is_private: ClassVar[bool] = True  # whether the scheme names an ε; it then encodes any floats

    clip: float | None = None
    spread: float = 3.0
    per: Literal["update", "tensor", "layers"] = "update"
    center: bool = False
    clips: tuple[tuple[str, float], ...] = field(default=(), init=False)

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        inherit_parameter_docs(cls)

    def __post_init__(self) -> None:
        take_annotated(self)
        self.codec  # noqa: B018 (checks its parameters)
        if self.is_private or self.codec.has_dither:  # so that the first update does not wait
            openssl()
            keep_memory()

    # What is known before any update

    @cached_property
    def scaling(self) -> Scaling:
        """How entries become samples, and what payloads reveal of it."""
        return Scaling(self.clip, self.spread, self.per, self.center, dict(self.clips))

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
    def bits_per_entry(self) -> float:
        """Bits that the body of a payload spends per entry."""
        return self.codec.coder.bits_per_letter / self.dimension

    @property
    @abstractmethod
    def codec(self) -> Codec[Any]:
        """The engine: a ``cached_property`` whose constructor checks the parameters."""

    def bias(self) -> float:
        """E[decoded] − x at the edge of the ball, outwards: exact on Z, else over fixed draws."""
        return self.codec.bias()

    @cached_property
    def spec(self) -> str:
        """Name and non-default parameters as JSON, as payloads name the scheme."""
        return spec_of(self)

    def cost(self, sizes: Mapping[str, int]) -> Guarantee:
        """The cost of one payload of tensors with so many entries each, against the server.

        >>> from jopeq import scheme
        >>> sizes = {"weight": 200, "bias": 10}
        >>> scheme("laplace", epsilon=4.0, clip=0.1).cost(sizes).epsilon
        840.0
        """
        cost = self.guarantee
        return cost.for_update(sum(sizes.values())) if cost.unit == "sample" else cost

    def with_clips(self, clips: Mapping[str, float]) -> Self:
        """Give each tensor its public clip (with ``per="layers"``), the same on both ends.

        >>> from jopeq import scheme
        >>> scheme("response", epsilon=4.0, rate=2.0, clip="layers").with_clips({"w": 0.5}).clips
        (('w', 0.5),)
        """
        if self.per != "layers":
            raise ValueError(f"with_clips needs per='layers', this scheme has per={self.per!r}")
        bound = replace(self)
        rounded = tuple((name, float(np.float32(clip))) for name, clip in clips.items())
        object.__setattr__(bound, "clips", rounded)
        for cached in ("scaling", "codec"):  # have other clips
            del bound.__dict__[cached]
        bound.codec  # noqa: B018 (checks the clips)
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
        """Encode an update or a state as a payload; ``decode`` is the inverse.

        An update is a float array or tensor of any shape, a state a mapping of them, for example
        from ``state_update``; its integer and boolean arrays are not sent.

        ``secret`` (32 bytes, agreed once) hides the dither from everyone else; without it the
        payload carries its own fresh seed. ``seed`` fixes that seed (or the nonce) and ``noise``
        the noise, for tests only: repeated randomness is not private. ``counts=True`` returns
        (payload, ``Counts``), for this client's eyes.

        A scheme with an ε encodes any floats, since a refusal would reveal something about them:
        NaN counts as 0, ±inf and too large entries as ±``clip`` or a fixed bound
        (``Scaling.limits``). They are logged here and counted in ``Counts.invalid``.
        ``on_invalid="raise"`` raises ``UpdateError`` instead, for trusted use within one process;
        it is the default without ε.

        >>> from jopeq import scheme
        >>> private = scheme("response", epsilon=4.0, rate=2.0, clip=0.5)
        >>> private.encode(np.array([np.nan, 0.1]), counts=True)[1].invalid
        1
        """
        given = self.codec.read(update), self.codec.limits(on_invalid)
        payload, counted = self.codec.encode(*given, seed=seed, secret=secret, noise=noise)
        return (payload, counted) if counts else payload

    def decode(
        self, payload: bytes, *, like: Any = None, secret: bytes | None = None, device: Any = None
    ) -> Any:
        """Decode a payload to an update or a state; raises ``PayloadError``.

        An update is a float32 array, or a torch tensor on ``device``; a state is a dict of them.

        ``like`` is an update or a state with the layout that you expect. The result has its names,
        shapes, types and devices; integer and boolean arrays of a state are 0, since no update
        changes them. Any other layout raises ``StateMismatchError`` before the body is decoded.
        Without ``like`` the payload chooses names and shapes. A replayed payload decodes again.

        >>> from jopeq import scheme
        >>> state = {"weight": np.ones((2, 3), np.float32), "steps": np.array(7)}
        >>> payload = scheme("none").encode(state)
        >>> list(scheme("none").decode(payload)), list(scheme("none").decode(payload, like=state))
        (['weight'], ['weight', 'steps'])
        """
        if like is None:
            opened = self.codec.open(payload, secret, MAX_TENSORS)
            return opened.header.arrange(opened.decode(device))
        if device is not None:
            raise ValueError("like determines the device of the result: drop device")
        state = like if isinstance(like, Mapping) else {"": like}
        result = self.codec.open(payload, secret, len(state) + MORE_TENSORS).decode_like(state)
        return result if isinstance(like, Mapping) else result[""]

    def open(
        self, payload: bytes, *, secret: bytes | None = None, most_tensors: int = MAX_TENSORS
    ) -> Opened:
        """Verify a payload and read its header, without decoding; raises ``PayloadError``.

        ``most_tensors`` is how many you expect. The checksum, and with ``secret`` the tag, are
        verified first. The tag does not detect replay: remember the nonces (``header.seed``) that
        you accepted and refuse copies, or change the secret every round.

        >>> from jopeq import scheme
        >>> opened = scheme("sdq", rate=2.0).open(scheme("sdq", rate=2.0).encode(np.ones((2, 3))))
        >>> opened.header.shapes, len(opened.header.seed), opened.decode().shape
        (((2, 3),), 32, (6,))
        """
        return self.codec.open(payload, secret, most_tensors)
