"""``jopeq doctor``: how a model would be sent, what is wrong with a node, kernels ahead of time."""

from __future__ import annotations

import math
import pkgutil
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from jopeq import kernels
from jopeq.analysis.learning import judge, mean_error
from jopeq.cli.output import end_with, explain_errors, make_console, print_text
from jopeq.kernels.cache import is_compiled, make_folder
from jopeq.random.rational import MAX_EPSILON
from jopeq.registry import scheme
from jopeq.schemes.model import find_frozen
from jopeq.sphere.sphere import LEAST_EPSILON, MOST_EPSILON, Sphere
from jopeq.sums.record_sum import ClientSum
from jopeq.wire.entries import check_flat, is_left_out
from jopeq.wire.scaling import VARIANCES, is_statistic

_KINDS = (".pt", ".pth")
_LARGE = 100_000_000  # entries: where kernels and memory begin to matter


def doctor(
    model: Annotated[
        str | None,
        typer.Argument(help="a file (.pt) or package.module:function"),
    ] = None,
    epsilon: Annotated[
        float, typer.Option(help="ε of one entry; in a sum, of a client in all rounds together")
    ] = 4.0,
    rate: Annotated[float, typer.Option(help="bits per entry")] = 2.0,
    clients: Annotated[int, typer.Option(help="clients per round, for a sum", min=4)] = 100,
    rounds: Annotated[int, typer.Option(help="rounds, for a sum", min=1)] = 20,
    node: Annotated[
        str | None, typer.Option(help="check a node by its --node-config; exit with 1 if it fails")
    ] = None,
    warmup: Annotated[
        bool, typer.Option("--warmup", help="compile the CPU kernels now, so that no run waits")
    ] = False,
) -> None:
    """Say how each tensor of a model would be sent, what that costs, and why.

    No file is unpickled. An import path runs the module's code: name only what you trust.
    """
    if node is not None:
        with explain_errors("", OSError):
            from flwr.common.config import parse_config_args

            from jopeq.flower.guard import check_health  # Flower takes seconds to import

            end_with(check_health(parse_config_args([node])))
    if warmup:
        compile_kernels()
        if model is None:
            return
    if model is None:
        raise typer.BadParameter("name a model, or give --warmup or --node")
    with explain_errors("", OSError, TypeError):
        state, frozen = state_of(model)
        sent = {name: value for name, value in state.items() if name not in frozen}
        for text in propose_sum(state, frozen, epsilon, clients, rounds):
            print_text(f"- {text}")
        print_text("", "Each entry by itself, which protects no person:")
        print_text(*describe_model(sent, epsilon, rate).splitlines())


def compile_kernels() -> None:
    """Compile the CPU kernels once, and say where they are kept."""
    console, was_compiled, start = make_console(), is_compiled(), time.perf_counter()
    with explain_errors(), console.status("compiling"):
        kernels.load()
    done = f"{'already ' * was_compiled}compiled in {time.perf_counter() - start:.1f} s"
    try:
        console.print(f"{done}: {make_folder()}")
    except (OSError, RuntimeError) as error:
        console.print(
            f"{done}, but the result cannot be kept ({error}): set NUMBA_CACHE_DIR to a "
            "folder that only you can write to"
        )


def describe_model(state: Mapping[str, Any], epsilon: float, rate: float) -> str:
    """The scheme for a model, its tensors, their cost, and advice, from names, shapes and types."""
    check_flat(state)
    chosen = scheme("response", epsilon=epsilon, rate=rate, clip="layers")
    shapes = {name: tuple(np.shape(value)) for name, value in state.items()}
    sizes = {n: math.prod(shapes[n]) for n, value in state.items() if not is_left_out(value)}
    width, sent = max(map(len, state), default=0), sum(sizes.values())
    size = math.ceil(chosen.bits_per_entry * sent / 8)
    lines = (
        f'scheme = jopeq.scheme("response", epsilon={epsilon:g}, rate={rate:g}, clip="layers")',
        *(f"  {n:{width}}  {shapes[n]!s:18} {_how(n, value)}" for n, value in state.items()),
        f"sent: {sent:,} entries in about {size:,} bytes, not {4 * sent:,}",
        str(chosen.cost(sizes)),
        *(f"- {text}" for text in _advice(sizes)),
    )
    return "\n".join(lines)


def _how(name: str, value: Any) -> str:
    if is_left_out(value):
        return "not sent: integers and Booleans are never part of an update"
    if is_statistic(name):
        unit = "factors of e, so it stays positive" if name.endswith(VARIANCES) else "deviations"
        return f"sent as a statistic: in {unit}; start with clip 1"
    return "sent: a public clip follows its updates"


def _advice(sizes: Mapping[str, int]) -> Iterator[str]:
    if not sizes:
        yield "There is nothing to send: no tensor holds floats."
        return
    yield (
        "ε protects single entries, not people. For people use jopeq.Sphere (trusts nobody) or "
        "jopeq.ClientSum (reveals only the sum)."
    )
    if any(map(is_statistic, sizes)):
        yield (
            "Normalisation layers: form updates with jopeq.state_update, apply them with "
            "jopeq.updated_state (Flower's mod does both), and recompute running statistics with "
            "PyTorch's torch.optim.swa_utils.update_bn if you can."
        )
    if all(name.isdigit() for name in sizes):
        yield (
            "The tensors' names are numbers, which hide running statistics: send a state_dict, "
            "whose names say what each tensor is."
        )
    if sum(sizes.values()) > _LARGE:
        yield "A large model: pip install 'jopeq[fast]' and run `jopeq doctor --warmup` once."


def propose_sum(
    state: Mapping[str, Any], frozen: Collection[str], epsilon: float, clients: int, rounds: int
) -> Iterator[str]:
    """The frozen tensors, and secure sums of the others with the accuracy to expect."""
    sizes = {n: math.prod(np.shape(v)) for n, v in state.items() if not is_left_out(v)}
    count = sum(size for name, size in sizes.items() if name not in frozen)
    if frozen:
        yield (
            f"{count:,} of {sum(sizes.values()):,} entries train. In Flower, on both ends: "
            f"frozen=jopeq.flower.find_frozen(model) (here frozen={sorted(frozen)!r:.300})"
        )
    if not count or epsilon > MAX_EPSILON:
        return
    yield (
        f"For patients of hospitals: jopeq plan --records PATIENTS --clients HOSPITALS --epsilon "
        f"{epsilon:g} --dimension {count} plans a jopeq.RecordSum, with ε for a patient."
    )
    scheme = ClientSum(
        epsilon=epsilon, clip=1.0, clients=clients, threshold=2 * clients // 3 + 1,
        rounds=rounds,
    )  # fmt: skip
    yield (
        f"For people, or hospitals as a whole: jopeq.ClientSum(epsilon={epsilon:g}, clip=…, "
        f"clients={clients}, threshold={scheme.threshold}, rounds={rounds}), "
        f"ε and δ = {scheme.delta:g} for all rounds of a client. "
        f"{judge(mean_error(scheme, count, clients)[0], rounds)}."
    )
    each = epsilon / rounds
    if LEAST_EPSILON <= each <= MOST_EPSILON:
        local = Sphere(epsilon=each, clip=1.0, max_entries=max(count, 1 << 22))
        verdict = judge(mean_error(local, count, clients)[0], rounds)
        yield (
            f"Trusting nobody: jopeq.Sphere(epsilon={each:g}, clip=…), ε of one update, "
            f"{epsilon:g} in all rounds. {verdict}."
        )


def state_of(model: str) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """(the state of a file or module, the names that the module does not train)."""
    path = Path(model)
    if path.suffix in _KINDS:
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {model}")
        return _from_file(path), ()  # a file does not say what trains
    if ":" not in model:
        raise ValueError(
            f"model must be a file ({', '.join(_KINDS)}) or package.module:function, got {model!r}"
        )
    try:
        made = pkgutil.resolve_name(model)()
        return dict(made.state_dict()), find_frozen(made)
    except Exception as error:
        raise ValueError(
            f"model {model!r} cannot be made ({type(error).__name__}: {error}): name a function "
            "that needs no arguments and returns an nn.Module, in a folder on PYTHONPATH"
        ) from error


def _from_file(path: Path) -> Mapping[str, Any]:
    import torch

    try:
        found = torch.load(path, map_location="cpu", weights_only=True)  # refuses other objects
    except Exception as error:
        raise ValueError(
            f"{path} holds more than tensors, or is damaged ({str(error).splitlines()[0]:.120}): "
            "save model.state_dict() and give that file; it is not unpickled"
        ) from error
    if isinstance(found, Mapping) and isinstance(found.get("state_dict"), Mapping):
        found = found["state_dict"]  # the form of many training scripts
    if not isinstance(found, Mapping):
        raise ValueError(f"{path} holds {type(found).__name__}, not a state: save state_dict()")
    return found
