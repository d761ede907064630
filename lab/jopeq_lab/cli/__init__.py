"""The ``jopeq-lab`` command."""

from __future__ import annotations

from jopeq.cli.app import make_app, start
from jopeq_lab.cli.attack import attack
from jopeq_lab.cli.demo import demo
from jopeq_lab.cli.explore import explore
from jopeq_lab.cli.train import train

app = make_app(
    "Train, attack and explore what jopeq compresses and keeps private.",
    (demo, train, attack, explore),
)


def main() -> None:
    """Entry point."""
    start(app)
