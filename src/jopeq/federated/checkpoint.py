"""The state of a run between two rounds, written so that a kill at any moment leaves a whole file.

No state of a random generator is kept, because there is none: every draw of a run depends on its
seed, round and client alone (``seeding``), and private noise must not be repeated anyway.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from jopeq.errors import JoPEQError
from jopeq.whole_files import atomic

VERSION = 1
_MAY_DIFFER = ("rounds", "checkpoint_every", "data_dir")  # what a resumed run may change


class CheckpointError(JoPEQError):
    """A checkpoint cannot be read, or belongs to another run."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """All that the next round depends on, and all results so far."""

    config: dict[str, Any]
    vector: torch.Tensor
    best_vector: torch.Tensor
    best_round: int
    clip: float | None
    history: list[dict[str, Any]]

    def save(self, path: Path) -> None:
        """Replace the file at ``path``; whoever reads it sees the old one or the new one."""
        content = {
            "version": VERSION,
            "config": json.dumps(self.config),
            "vector": self.vector,
            "best_vector": self.best_vector,
            "best_round": self.best_round,
            "clip": self.clip,
            "history": json.dumps(self.history),
        }
        with atomic(path) as file:
            torch.save(content, file)

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """Read tensors, numbers and text, and nothing that could run (``weights_only``)."""
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
            if content["version"] != VERSION:
                raise CheckpointError(
                    f"{path} has version {content['version']}, this jopeq reads {VERSION}"
                )
            return cls(
                json.loads(content["config"]),
                content["vector"],
                content["best_vector"],
                int(content["best_round"]),
                None if content["clip"] is None else float(content["clip"]),
                json.loads(content["history"]),
            )
        except (OSError, RuntimeError, KeyError, TypeError, ValueError, EOFError) as error:
            raise CheckpointError(f"{path} is no checkpoint ({error}): start anew") from error
        except pickle.UnpicklingError as error:
            raise CheckpointError(
                f"{path} is no checkpoint of jopeq, or not a harmless one: start anew"
            ) from error

    def check(self, config: dict[str, Any]) -> None:
        """Raise unless this is a checkpoint of that run."""
        wanted = json.loads(json.dumps(config))
        different = [
            f"{name} was {self.config.get(name)!r}, is {wanted.get(name)!r}"
            for name in sorted({*wanted, *self.config} - {*_MAY_DIFFER})
            if self.config.get(name) != wanted.get(name)
        ]
        if different:
            raise CheckpointError(
                f"the checkpoint is of another run ({'; '.join(different)}): resume with the same "
                "options, or start in another folder"
            )
        if wanted["rounds"] < len(self.history):
            raise CheckpointError(
                f"the checkpoint is of round {len(self.history)}, beyond rounds={wanted['rounds']}"
            )
