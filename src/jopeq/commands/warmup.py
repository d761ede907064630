"""``jopeq warmup``: compile the CPU kernels ahead of time."""

from __future__ import annotations

import time

import typer

from jopeq import kernels
from jopeq.commands.output import make_console


def warmup() -> None:
    """Compile the CPU kernels once, so that no later run waits for the compiler."""
    from jopeq.kernels.cache import cache_folder, is_compiled

    console = make_console()
    was_compiled = is_compiled()
    start = time.perf_counter()
    try:
        with console.status("compiling"):
            kernels.load()
    except ImportError as error:
        raise typer.BadParameter(str(error)) from error
    seconds = time.perf_counter() - start
    folder = cache_folder()
    if folder is None:
        console.print(
            f"compiled in {seconds:.0f} s, but no cache folder can be written: "
            "set NUMBA_CACHE_DIR to keep the result"
        )
    elif was_compiled:
        console.print(f"already compiled (loaded in {seconds:.1f} s): {folder}")
    else:
        console.print(f"compiled in {seconds:.0f} s: {folder}")
