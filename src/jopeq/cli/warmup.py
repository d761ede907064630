"""``jopeq warmup``: compile the CPU kernels ahead of time."""

from __future__ import annotations

import time

import typer

from jopeq import kernels
from jopeq.cli.output import make_console


def warmup() -> None:
    """Compile the CPU kernels once, so that no later run waits for the compiler."""
    from jopeq.kernels.cache import checked_folder, is_compiled

    console = make_console()
    was_compiled = is_compiled()
    start = time.perf_counter()
    try:
        with console.status("compiling"):
            kernels.load()
    except ImportError as error:
        raise typer.BadParameter(str(error)) from error
    seconds = time.perf_counter() - start
    try:
        folder = checked_folder()
    except (OSError, RuntimeError) as error:
        console.print(
            f"compiled in {seconds:.0f} s, but the result cannot be kept ({error}): "
            "set NUMBA_CACHE_DIR to a folder that you alone can write to"
        )
        return
    if was_compiled:
        console.print(f"already compiled (loaded in {seconds:.1f} s): {folder}")
    else:
        console.print(f"compiled in {seconds:.0f} s: {folder}")
