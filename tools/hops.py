"""Follow the data: which functions an update, or a message of hospitals on Flower, passes.

    python tools/hops.py          print the table
    python tools/hops.py --write  put it into CONTRIBUTING.md

Counted are the functions of ``jopeq`` that one call runs on the plain path, comprehensions too, the
files they lie in, and how often the next call lies in another file.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, ClassVar

import numpy as np

import jopeq
from jopeq import kernels

ROOT = Path(jopeq.__file__).parent
PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
SCHEMES = {
    "jopeq": {"epsilon": 4.0, "rate": 1.0},
    "sdq": {"rate": 2.0},
}
ENTRIES = 1000


@dataclass(frozen=True)
class Walk:
    """The arguments of one call."""

    functions: int
    files: int
    changes: int


@contextmanager
def followed(path: list[CodeType]) -> Iterator[None]:
    """Note the functions of ``jopeq`` that the block calls; blocks may lie in one another."""

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(f"{ROOT}{os.sep}"):
            path.append(code)

    outer = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(outer)


def measure(path: list[CodeType]) -> Walk:
    """Count functions, files and changes of file."""
    files = [code.co_filename for code in path]
    changes = sum(one != two for one, two in pairwise(files))
    return Walk(len(set(path)), len(set(files)), changes)


def follow(call: Callable[[], Any]) -> Walk:
    """The walk of the second call: the first fills the caches."""
    call()
    path: list[CodeType] = []
    with followed(path):
        call()
    return measure(path)


def record_walks() -> dict[tuple[str, str], Walk]:
    """The third round of five hospitals in one process, at a hospital and at the server."""
    import torch
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from flwr.app import Context, RecordDict
    from flwr.supercore.task_identity import TaskIdentity
    from torch.nn.functional import cross_entropy

    from jopeq.flower import RecordStrategy, record_client

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    folder, nodes = Path(tempfile.mkdtemp()), range(1, 6)
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    keys = {node: Ed25519PrivateKey.generate() for node in nodes}
    (folder / "trusted").write_text(
        "\n".join(key.public_key().public_bytes_raw().hex() for key in keys.values())
    )
    contexts = {}
    for node, key in keys.items():
        (folder / f"{node}.pem").touch(0o600)
        (folder / f"{node}.pem").write_bytes(
            key.private_bytes(pem, form, serialization.NoEncryption())
        )
        jopeq.Ledger.create(folder / f"{node}.json", 8.0, 1e-5)
        config = {"ledger": folder / f"{node}.json", "identity": folder / f"{node}.pem"}
        config["trusted"] = folder / "trusted"
        node_config = {f"jopeq-{name}": str(path) for name, path in config.items()}
        contexts[node] = Context(1, node, node_config, RecordDict(), {})
    scheme = jopeq.RecordSum(
        epsilon=8.0, clip=1.0, records=1500, most_records=400, sampling=0.5, rounds=12, clients=5,
        threshold=3,
    )  # fmt: skip
    model = lambda: torch.nn.Linear(64, 10)  # noqa: E731
    app = record_client(
        scheme,
        model=model,
        loss=cross_entropy,
        load=lambda _: (torch.ones(300, 64), torch.zeros(300, dtype=torch.long)),
        example=(torch.zeros(64), torch.tensor(0)),
    )
    strategy = RecordStrategy(
        scheme,
        model=model(),
        optimizer=lambda p: torch.optim.SGD(p, lr=1.0),
        trusted=folder / "trusted",
    )
    paths: dict[int, list[CodeType]] = {0: []}  # the server's, and below it each hospital's

    class Grid:
        replies: ClassVar[dict[str, Any]] = {}
        numbers = itertools.count()

        def get_node_ids(self) -> list[int]:
            return list(nodes)

        def push_messages(self, messages: list[Any]) -> list[str]:
            return [self.push(message, message.metadata.dst_node_id) for message in messages]

        def push(self, message: Any, node: int) -> str:
            paths[node], number = [], str(next(self.numbers))
            with followed(paths[node]):
                reply = app(message, contexts[node])
            vars(reply.metadata)["_reply_to_message_id"] = number
            self.replies[number] = reply
            return number

        def pull_messages(self, numbers: list[str]) -> list[Any]:
            return [self.replies.pop(number) for number in numbers]

        def send_and_receive(self, messages: list[Any], **_: Any) -> list[Any]:
            return list(messages)

    def begin(*_: Any) -> None:
        paths[0].clear()  # only the last round is counted

    with followed(paths[0]):
        strategy.start(Grid(), num_rounds=2, evaluate_fn=begin)
        begin()
        strategy.start(Grid(), num_rounds=3)
    return {
        ("a record message", "client"): measure(paths[1]),
        ("a record message", "server"): measure(paths[0]),
    }


def walks() -> dict[tuple[str, str], Walk]:
    """Encode and decode of each scheme, without compiled kernels."""
    kernels.use("off")
    try:
        found = {}
        for name, parameters in SCHEMES.items():
            scheme = jopeq.scheme(name, **parameters)
            update = np.linspace(-1.0, 1.0, ENTRIES, dtype=np.float32)
            payload = scheme.encode(update)
            found[name, "encode"] = follow(lambda s=scheme, x=update: s.encode(x))
            found[name, "decode"] = follow(lambda s=scheme, p=payload: s.decode(p))
        return found
    finally:
        kernels.use(None)


def table() -> str:
    """The walks in Markdown."""
    lines = ["| | functions | files | changes of file |", "|---|---|---|---|"]
    kernels.use("off")
    for (name, what), walk in (walks() | record_walks()).items():
        label = f"{name}, {what}" if " " in name else f"`{name}`, `{what}`"
        lines.append(f"| {label} | {walk.functions} | {walk.files} | {walk.changes} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table, and write it where that is asked for."""
    found = table()
    print(found)
    if "--write" in sys.argv[1:]:
        text = PAGE.read_text("utf-8")
        marks = r"(<!-- hops -->\n).*?(\n<!-- /hops -->)"
        changed, times = re.subn(marks, rf"\g<1>{found}\g<2>", text, flags=re.DOTALL)
        if times != 1:
            raise SystemExit(f"{PAGE} has no marks <!-- hops --> … <!-- /hops -->")
        PAGE.write_text(changed, "utf-8")


if __name__ == "__main__":
    main()
