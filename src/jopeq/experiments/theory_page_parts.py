"""What the sections and figures of docs/theory.md have in common: how they read their part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from jopeq.errors import DataError

Part = Mapping[str, Any]
Section = tuple[str, list[str]]  # its text, and its row of the summary

REMEDY = "delete it and run `jopeq reproduce theory`"


class SpoiltPartError(DataError, ValueError):
    """A part of theory.json is not what its experiment keeps."""


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Whatever is made of that part; where the part is spoilt, the error says so.

    >>> with reading("dither"):
    ...     {}["lattices"]
    Traceback (most recent call last):
        ...
    jopeq.experiments.theory_page_parts.SpoiltPartError: theory.json, part 'dither': it lacks \
'lattices': delete it and run `jopeq reproduce theory`
    """
    try:
        yield
    except KeyError as error:
        raise SpoiltPartError(f"theory.json, part {name!r}: it lacks {error}: {REMEDY}") from error
    except (
        ArithmeticError,
        AttributeError,
        IndexError,
        StopIteration,
        TypeError,
        ValueError,
    ) as error:
        what = f"{type(error).__name__}: {error}".rstrip(": ")
        raise SpoiltPartError(
            f"theory.json, part {name!r}: it is not as it was kept ({what}): {REMEDY}"
        ) from error


def listed(items: Sequence[str]) -> str:
    """As a sentence lists them.

    >>> listed(["Z"]), listed(["Z", "A2", "D4"])
    ('Z', 'Z, A2 and D4')
    """
    return " and ".join(filter(None, (", ".join(items[:-1]), items[-1])))
