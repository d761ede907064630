"""Settings of a run, from its file, ``-s NAME=VALUE`` and options: which kind of run reads which.

A name is a field of the run's configuration (``training.config``), a parameter of its scheme, or
one of ``_OF_RUNS``. A setting that nothing would read is refused.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from jopeq.cli.options import build_any, name_of
from jopeq.cli.output import with_flags
from jopeq.registry import parameters_of
from jopeq.schemes.base import Scheme
from jopeq.sphere.sphere import Sphere
from jopeq.sums.record_sum import ClientSum, RecordSum

if TYPE_CHECKING:
    from jopeq_lab.training.config import RunConfig

SMALL_MODELS = ("linear", "mlp", "lenet")  # whose threads would wait for one another
_OF_RUNS = {
    "scheme": "str",
    "hospitals": "int",
    "seed": "list",
    "seeds": "int",
    "out": "str",
}
_TYPES: dict[str, type | tuple[type, ...]] = {
    "int": int, "float": (int, float), "bool": bool, "str": str, "list": list
}  # fmt: skip


def read_file(path: Path | None) -> dict[str, Any]:
    """The settings of a TOML file; none without a file."""
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # of TOML and of UTF-8 alike
        raise typer.BadParameter(f"{path} cannot be read ({error})") from error


def build_scheme(name: str, given: Mapping[str, Any]) -> Scheme | Sphere:
    """The scheme of these settings, for commands that code payloads or reports."""
    if name in (ClientSum.name, RecordSum.name):
        train = "--people" if name == ClientSum.name else "--hospitals"
        raise typer.BadParameter(
            f"--scheme {name} makes shares of a sum, and a single share is noise: train with "
            f"{train}, or compare attacks with the proof by jopeq audit --scheme {name}"
        )
    built: Scheme | Sphere = build_any(name, given)
    return built


class Settings:
    """Checked ``values`` by name, and what reads them."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        from jopeq_lab.training.config import HospitalsConfig, PeopleConfig, TrainConfig

        self.values = {**values}
        if isinstance(self.values.get("seed"), int):
            self.values["seed"] = [self.values["seed"]]
        self.scheme = name_of(str(self.values.get("scheme", "none")))
        self.of_hospitals = "hospitals" in values or self.scheme == RecordSum.name
        self.kind: type[RunConfig] = PeopleConfig if "people" in values else TrainConfig
        if self.of_hospitals:
            self.kind = HospitalsConfig
            if "hospitals" not in values or self.scheme != RecordSum.name:
                got = f"--scheme {self.scheme}"
                if "hospitals" in values:
                    got = f"--hospitals {values['hospitals']} with {got}"
                raise typer.BadParameter(
                    f"--hospitals and --scheme {RecordSum.name} belong together, got {got}: give "
                    "both"
                )
        readers = {
            "with --people": _fields_of(PeopleConfig),
            "with --hospitals": _fields_of(HospitalsConfig),
            "without --people and --hospitals": _fields_of(TrainConfig),
        }
        for name, value in self.values.items():
            self._check(name, value, readers)

    @cached_property
    def of_run(self) -> dict[str, Any]:
        """Fields of the configuration but scheme and seed."""
        names = {*_fields_of(self.kind)} - {*_OF_RUNS} - {*self.of_scheme}
        return {name: value for name, value in self.values.items() if name in names}

    @cached_property
    def of_scheme(self) -> dict[str, Any]:
        """Parameters of the scheme; a name that the configuration has too is the run's."""
        names = {*self._parameters} - ({*_fields_of(self.kind)} - {"clip"})
        return {name: value for name, value in self.values.items() if name in names}

    @property
    def seeds(self) -> list[int]:
        """The seeds, one run per seed."""
        seeds: list[int] = self.values.get("seed") or [*range(self.values.get("seeds", 1))]
        return list(dict.fromkeys(seeds))

    @cached_property
    def _parameters(self) -> set[str]:
        from jopeq_lab.training.cohorts import Central

        if self.scheme == "central":
            return {field.name for field in fields(Central)}
        try:
            return {*parameters_of(self.scheme)} - ({"clients"} if self.of_hospitals else set())
        except ValueError as error:
            raise typer.BadParameter(with_flags(str(error))) from error

    def _check(self, name: str, value: Any, readers: Mapping[str, Mapping[str, str]]) -> None:
        """Refuse a setting that is unused or has a wrong type."""
        types = {key: kind for named in readers.values() for key, kind in named.items()} | _OF_RUNS
        wrong = ""
        if name not in {*_fields_of(self.kind), *_OF_RUNS, *self._parameters}:
            whose = " or ".join(words for words, names in readers.items() if name in names)
            near = get_close_matches(name, [*types, *self._parameters], 1)
            hint = f"did you mean {near[0]}?" if near else "docs/commands.md lists all settings"
            wrong = f"would not be read: it is for runs {whose}" if whose else (
                f"is no setting, and no parameter of scheme {self.scheme!r}: {hint}"
            )  # fmt: skip
        elif name in types and name not in self.of_scheme and not _is_of(value, types[name]):
            wrong = f"must be of type {types[name]}, got {value!r}"
        elif name == "seeds" and value < 1:
            wrong = f"must be at least 1, got {value}"
        elif name == "seed" and not all(isinstance(one, int) for one in value):
            wrong = f"must be whole numbers, got {value}"
        else:
            wrong = self._missing(name)
        if wrong:
            raise typer.BadParameter(with_flags(f"{name} {wrong}"))

    def _missing(self, name: str) -> str:
        """Say which other setting this one needs."""
        given = self.values
        needs = {
            **dict.fromkeys(
                ("plateau_factor", "plateau_patience"),
                ("schedule=client-plateau", given.get("schedule") == "client-plateau"),
            ),
            "alpha": ("partition=dirichlet", given.get("partition") == "dirichlet"),
            "seeds": ("runs without --seed", "seed" not in given),
            "checkpoint_every": ("runs with --out", "out" in given),
        }
        words, holds = needs.get(name, ("", True))
        return "" if holds else f"would not be read: it is for {words}"


def _fields_of(kind: type[RunConfig]) -> dict[str, str]:
    """Names and types of the fields that a configuration takes."""
    return {field.name: str(field.type) for field in fields(kind) if field.init}


def _is_of(value: Any, kind: str) -> bool:
    """Tell if a value has one of the types that a field's annotation names."""
    return any(
        isinstance(value, _TYPES[one]) and (one == "bool" or not isinstance(value, bool))
        for one in kind.split(" | ")
        if one in _TYPES
    )
