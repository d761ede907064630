"""Sum the reports of a round on many machines: Parquet files, Dask, the same mean bit by bit.

    pip install '.[dask]'
    python examples/aggregate_dask.py [--kill]

Every file holds two columns, ``client`` and ``index``. A worker sums a file in the memory of one
update; sums add up in any order. With ``--kill`` a worker dies with a sum that nobody else has, and
Dask makes it again. On a cluster of your own, give its address to ``Client``.
"""

import argparse
import hashlib
import operator
import os
import signal
import tempfile
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client, Future, LocalCluster, as_completed

import jopeq
from jopeq.sphere import Aggregator, Round

SCHEME = jopeq.Sphere(epsilon=8.0, clip=1.0, draws=1 << 12)
PEOPLE, DIMENSION, FILES = 2_000, 200, 8


def write_reports(terms: Round, folder: Path) -> list[str]:
    """Reports of the people, each client in one file."""
    rng = np.random.default_rng(0)
    updates = 0.05 + rng.normal(0.0, 0.01, (PEOPLE, DIMENSION))
    paths = []
    for number, clients in enumerate(np.array_split(rng.permutation(PEOPLE), FILES)):
        columns = {
            "client": clients.astype(np.uint32),
            "index": terms.indices(updates[clients], clients=clients).astype(np.uint32),
        }
        paths.append(str(folder / f"reports-{number}.parquet"))
        pq.write_table(pa.table(columns), paths[-1], row_group_size=200)
    return paths


def sum_of_file(terms: bytes, path: str) -> Aggregator:
    """One worker's part; a duplicate or malformed report is counted and left out."""
    total = Round.from_terms(terms, scheme=SCHEME).aggregator()
    for batch in pq.ParquetFile(path).iter_batches(columns=["client", "index"]):
        total.add_many(batch["index"].to_numpy(), clients=batch["client"].to_numpy())
    return total


def sum_on(client: Client, terms: bytes, paths: list[str], is_killed: bool) -> Aggregator:
    """All files, summed by the workers, two sums at a time."""
    parts = client.map(sum_of_file, [terms] * len(paths), paths)
    if is_killed:
        kill_owner(client, next(iter(as_completed(parts))))
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=False)
        parts = [client.submit(operator.add, *pair) for pair in pairs] + parts[len(parts) & ~1 :]
    return parts[0].result()


def kill_owner(client: Client, done: Future) -> None:
    """Kill the worker that has this sum in its memory."""
    (address, *_) = client.who_has([done])[done.key]
    os.kill(client.run(os.getpid, workers=[address])[address], signal.SIGKILL)
    print("killed a worker that had a sum")


def main() -> None:
    """Make reports, sum them here and on Dask, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kill", action="store_true", help="kill a worker in the middle")
    is_killed = parser.parse_args().kill
    terms = SCHEME.round(dimension=DIMENSION, seed=os.urandom(32))
    with tempfile.TemporaryDirectory() as folder:
        paths = write_reports(terms, Path(folder))
        alone = reduce(operator.add, [sum_of_file(terms.terms, path) for path in paths])
        with (
            LocalCluster(
                n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None,
                local_directory=folder,
            ) as cluster,
            Client(cluster) as client,
        ):  # fmt: skip
            shared = sum_on(client, terms.terms, paths, is_killed)
    for name, total in {"one process": alone, "Dask": shared}.items():
        digest = hashlib.sha256(total.mean().tobytes()).hexdigest()[:16]
        error = float(np.linalg.norm(total.mean() - 0.05))
        print(f"{name}: {total.count:,} reports, mean {digest}, error {error:.2f} ", end="")
        print(f"(expected {total.standard_error:.2f})")


if __name__ == "__main__":
    main()
