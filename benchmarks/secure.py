"""Measure secure sums: the rows that results/secure.jsonl lacks, and the table of the docs.

    python benchmarks/secure.py            # runs what is missing
    python benchmarks/secure.py --page     # then the table of docs/hospitals.md
    python benchmarks/secure.py --speed    # prints how fast masks and shares are made

Everything is run and timed, nothing is extrapolated. Flower's SecAgg+ is timed by its own
primitives with as many neighbours, in the same run.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES, ChaCha20
from cryptography.hazmat.primitives.ciphers.modes import CTR
from flwr.common import ndarray_to_bytes
from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import (
    decrypt,
    encrypt,
    generate_shared_key,
)
from flwr.common.secure_aggregation.ndarrays_arithmetic import parameters_addition, parameters_mod
from flwr.common.secure_aggregation.secaggplus_utils import (
    pseudo_rand_gen,
    share_keys_plaintext_concat,
)
from flwr.supercore.primitives.asymmetric import (
    generate_key_pairs,
    private_key_to_bytes,
    public_key_to_bytes,
)

import jopeq
from jopeq import kernels
from jopeq.circle import graph_for
from jopeq.circle.client import Client
from jopeq.circle.crypto import CONFIRMATION_BYTES, add_mask, zeros
from jopeq.circle.messages import Kind, Terms
from jopeq.circle.server import Server
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.sums.clipped_total import UNITS
from jopeq.sums.shares import rotate
from timing import best_seconds, cores, load, machine

BITS = 8
_MOD = 1 << 32  # Flower's default
_KEY_BYTES = 9  # of private key stream for an entry of a share
ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "results/secure.jsonl", ROOT / "docs/hospitals.md"
START, END = "<!-- secure sums: begin -->\n", "<!-- secure sums: end -->\n"


class Clock:
    """Seconds of this process's work, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, name: str, work: Any, *arguments: Any) -> Any:
        start = time.process_time()
        result = work(*arguments)
        spent = time.process_time() - start
        self.seconds[name] = self.seconds.get(name, 0.0) + spent
        return result


def masks(entries: int) -> dict[str, float]:
    """Bytes a second of two ciphers alone, and of masks that are added."""
    still, moving = bytes(entries), bytearray(entries + 15)

    def stream(cipher: Cipher[Any]) -> None:
        cipher.encryptor().update_into(still, moving)

    total = zeros(entries, BITS)
    return {
        "AES-256-CTR": entries
        / best_seconds(lambda: stream(Cipher(AES(bytes(32)), CTR(bytes(16))))),
        "ChaCha20": entries
        / best_seconds(lambda: stream(Cipher(ChaCha20(bytes(32), bytes(16)), None))),
        "mask": entries / best_seconds(lambda: add_mask(total, bytes(32), 1)),
    }


def encoding(entries: int, key_stream: float) -> None:
    """Print entries a second of the encoder, its halves, and the key stream that it needs."""
    update = (np.random.default_rng(0).standard_normal(entries) * 1e-3).astype(np.float32)
    scheme = jopeq.ClientSum(
        epsilon=4.0, clip=1.0, clients=100, threshold=100, bits=BITS, largest_mean=0.3
    )
    seed, plan, noise = bytes(32), scheme.plan(entries), PrivateStream.reproducible(bytes(32))
    shared, total = SharedStream(seed), scheme.total(update)
    kernels.use("on")
    kernels.load()
    turned = rotate(total.values, plan.bound / UNITS, shared)
    stages: dict[str, Callable[[], Any]] = {
        "encode": lambda: scheme.encode(update, seed=seed),
        "clipping": lambda: scheme.total(update),
        "rotation": lambda: rotate(total.values, plan.bound / UNITS, shared),
        "rounding and draws": lambda: kernels.cpu.draw_share(turned, plan.law, plan.bits, noise),
    }
    print(f"| {entries:,} entries, {BITS} bits, M entries/s | 1 thread | {cores()} threads |")
    print("|---|---|---|")
    for name, work in stages.items():
        speeds = []
        for count in (1, None):
            kernels.set_threads(count)
            speeds.append(entries / best_seconds(work, budget=1.0) / 1e6)
        print(f"| {name} | {speeds[0]:.0f} | {speeds[1]:.0f} |")
    most = key_stream / _KEY_BYTES / 1e6
    print(
        f"| OpenSSL: its {_KEY_BYTES} bytes of key stream | {most:.0f} | {most * cores():.0f} |\n"
    )


def ours(clients: int, entries: int) -> dict[str, Any]:
    """One client's CPU and bytes; the server's CPU when one client in ten drops out.

    Client 0 is timed. Up to ten clients, all send masked vectors and the sum is checked. Beyond,
    the others send random bytes of the same length, and nobody looks at what the server opens.
    """
    threshold = -(-2 * clients // 3)
    terms = Terms(spec="benchmark", bits=BITS, length=entries, clients=clients, threshold=threshold)
    server, clock = Server(terms), Clock()  # the cost of signatures is not measured
    everyone = {number: Client(terms, number) for number in range(clients)}
    first = everyone[0]
    keys = {n: client.keys(server.offer) for n, client in everyone.items()}
    roster = clock("server", server.roster, keys.items())
    shares = {n: everyone[n].shares(roster[n]) for n in range(1, clients)}
    shares[0] = clock("shares", first.shares, roster[0])
    inboxes = clock("server", server.inboxes, shares.items())
    for number in range(1, clients):
        everyone[number].receive(inboxes[number])
    clock("shares", first.receive, inboxes[0])
    vector = np.arange(entries) % (1 << BITS)
    sent = {0: clock("masks", first.mask, vector)}
    gone = range(clients - clients // 10, clients)
    is_checked = clients <= 10
    random = np.random.default_rng(0)
    for number in range(1, clients - len(gone)):
        if is_checked:
            sent[number] = everyone[number].mask(vector)
        else:
            everyone[number].phase = "open"
            # true confirmations, then random bytes instead of a masked vector
            told = sorted(everyone[number]._confirmations.items())
            body = b"".join(both[:CONFIRMATION_BYTES] for _, both in told)
            sent[number] = terms.message(Kind.MASKED, body, random.bytes(entries * BITS // 8))
    survivors = clock("adding", server.survivors, sent.items())
    opened = {n: everyone[n].open(survivors[n]) for n in survivors if n}
    opened[0] = clock("shares", first.open, survivors[0])
    total = clock("opening", server.total, opened.items())
    if is_checked and not np.array_equal(total, vector * len(sent) % (1 << BITS)):
        raise RuntimeError("the sum is wrong")
    up = sum(len(messages[0]) for messages in (keys, shares, sent, opened))
    down = len(server.offer) + sum(len(messages[0]) for messages in (roster, inboxes, survivors))
    return {
        "neighbours": graph_for(clients, threshold, 0)[0],
        "up": up,
        "down": down,
        **clock.seconds,
    }


def flower(clients: int, entries: int, neighbours: int) -> dict[str, Any]:
    """Time the primitives of Flower's SecAgg+, each once for every neighbour."""
    threshold, clock = -(-2 * clients // 3), Clock()
    threshold = min(threshold, neighbours)
    masking, sealing = generate_key_pairs(), generate_key_pairs()
    other = generate_key_pairs()
    seed, up = bytes(range(32)), 0
    secrets = (seed, private_key_to_bytes(masking[0]))
    up += sum(len(public_key_to_bytes(pair[1])) for pair in (masking, sealing))

    def share() -> list[bytes]:
        halves = [create_shares(secret, threshold, neighbours + 1) for secret in secrets]
        sealed = []
        for seeds, private in zip(*halves, strict=True):
            key = generate_shared_key(sealing[0], other[1])
            sealed.append(encrypt(key, share_keys_plaintext_concat(1, 2, seeds, private)))
        for box in sealed:
            decrypt(key, box)
        clock.halves = halves  # type: ignore[attr-defined]
        return sealed[1:]

    up += sum(map(len, clock("shares", share)))
    vector = [np.arange(entries, dtype=np.int64)]

    def mask() -> list[Any]:
        total = parameters_addition(vector, pseudo_rand_gen(seed, _MOD, [(entries,)]))
        for _ in range(neighbours):
            key = generate_shared_key(masking[0], other[1])
            total = parameters_addition(total, pseudo_rand_gen(key, _MOD, [(entries,)]))
        return parameters_mod(total, _MOD)

    up += len(ndarray_to_bytes(clock("masks", mask)[0]))
    up += sum(map(len, clock.halves[0]))  # type: ignore[attr-defined]

    def one_survivor() -> None:
        combine_shares(clock.halves[0][:threshold])  # type: ignore[attr-defined]
        pseudo_rand_gen(seed, _MOD, [(entries,)])

    clock("one survivor", one_survivor)
    return {"up": up, **clock.seconds}


def speed(entries: int) -> None:
    """Print how fast this machine makes masks and shares."""
    print(machine(), "load", load(), "\n")
    speeds = masks(entries)
    encoding(entries, speeds["ChaCha20"])
    print("GB/s on one core:", {name: round(speed / 1e9, 2) for name, speed in speeds.items()})
    print(f"masks at {speeds['mask'] / speeds['AES-256-CTR']:.0%} of the key stream's speed\n")


def protocol(sizes: list[int], cohorts: list[int]) -> None:
    """Time what is not kept, and keep it."""
    done = {(row["entries"], row["clients"]) for row in rows()}
    for entries, clients in itertools.product(sizes, cohorts):
        if (entries, clients) not in done:
            mine = ours(clients, entries)
            theirs = flower(clients, entries, mine["neighbours"])
            row = {"entries": entries, "clients": clients, "jopeq": mine, "flower": theirs}
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**row, "machine": machine(), "load": load()}) + "\n")


def rows() -> list[dict[str, Any]]:
    """Read the kept rows."""
    lines = RESULTS.read_text("utf-8").splitlines() if RESULTS.exists() else []
    return sorted(map(json.loads, lines), key=lambda row: (row["entries"], row["clients"]))


def page() -> None:
    """Fill in the table of the docs."""
    names = "entries|clients|neighbours|who|client: shares + masks, s|client: bytes up"
    lines = [f"| {names.replace('|', ' | ')} | server: adding + opening, s |", "|---" * 7 + "|"]
    for row in rows():
        mine, theirs = row["jopeq"], row["flower"]
        adding = mine["server"] + mine["adding"]
        place = f"{row['entries']:,} | {row['clients']:,} | {mine['neighbours']}"
        costs = f"{mine['shares']:.3f} + {mine['masks']:.3f} | {mine['up']:,}"
        lines.append(f"| {place} | jopeq | {costs} | {adding:.2f} + {mine['opening']:.2f} |")
        costs = f"{theirs['shares']:.3f} + {theirs['masks']:.3f} | {theirs['up']:,}"
        more = f"({theirs['up'] / mine['up']:.1f} ×)"
        each = f"{theirs['one survivor']:.3f} for each survivor"
        lines.append(f"| | | | Flower SecAgg+ | {costs} {more} | {each} |")
    about = rows()[-1]["machine"]
    where = f"On {about['processor']}, {about['date']}:"
    head, _, rest = PAGE.read_text("utf-8").partition(START)
    _, _, tail = rest.partition(END)
    table = "\n".join(lines)
    PAGE.write_text(f"{head}{START}\n{where}\n\n{table}\n\n{END}{tail}", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, nargs="+", default=[10**5, 10**6])
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--page", action="store_true", help="fill in the table of the docs")
    parser.add_argument("--speed", action="store_true", help="print how fast shares are made")
    given = parser.parse_args()
    if given.speed:
        speed(max(given.entries))
        return
    protocol(given.entries, given.clients)
    if given.page:
        page()


if __name__ == "__main__":
    main()
