"""The ``jopeq`` command."""

from __future__ import annotations

from jopeq.cli.app import make_app, start
from jopeq.cli.audit import audit
from jopeq.cli.doctor import doctor
from jopeq.cli.evaluate import evaluate
from jopeq.cli.fit import fit
from jopeq.cli.guard import guard
from jopeq.cli.ledger import ledger
from jopeq.cli.plan import plan
from jopeq.cli.stats import stats

app = make_app(
    "Federated updates, compressed and private before they leave the device.",
    (plan, audit, stats, fit, evaluate, doctor, guard),
)
app.add_typer(ledger, name="ledger")


def main() -> None:
    """Entry point."""
    start(app)
