"""How ``jopeq attack`` is told to attack: options checked together, before any work is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jopeq.schemes import Scheme

if TYPE_CHECKING:
    from jopeq.attacks.attack import AttackConfig

_OPTIONS = {"method": "attack", "line_search": "line-search"}  # where it is no field's own name


def attack_config(
    methods: Sequence[str], *, line_search: str | None, **settings: Any
) -> AttackConfig:
    """The settings of all methods (the first being set); errors name the option."""
    from jopeq.attacks.attack import AttackConfig

    if line_search is not None:
        settings["line_search"] = line_search
    try:
        configs = [AttackConfig(method=method, **settings) for method in methods]
    except ValueError as error:
        name, _, rest = str(error).partition(" ")
        raise ValueError(f"--{_OPTIONS.get(name, name)} {rest}") from error
    if line_search is not None and all(one.optimizer_in_use == "adam" for one in configs):
        raise ValueError(
            f"--line-search {line_search} belongs to L-BFGS, and these attacks run with Adam: "
            "drop it, or give --optimizer lbfgs"
        )
    return configs[0]


def check_methods(methods: Sequence[str], schemes: Mapping[str, Scheme]) -> None:
    """Whether every method can attack every scheme."""
    centered = [label for label, one in schemes.items() if one.is_scaled and one.center]
    if "adaptive" in methods and centered:
        raise ValueError(
            f"--attack adaptive does not know center=true, which scheme {centered[0]!r} has: drop "
            "-p center=true, or name other attacks"
        )


def check_demo(**others: object) -> None:
    """The demo's images and schemes are its own."""
    given = [f"--{name.replace('_', '-')}" for name, value in others.items() if value]
    if given:
        raise ValueError(
            f"--demo brings its own images and schemes: drop --demo, or {' and '.join(given)}"
        )
