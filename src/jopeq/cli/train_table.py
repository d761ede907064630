"""The tables of ``jopeq train``, one for each kind of run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jopeq.cli.output import epsilon_text, make_console, make_table, print_table

if TYPE_CHECKING:
    from rich.table import Table

    from jopeq.lab.training.metrics import RoundMetrics
    from jopeq.lab.training.simulation import Result

CLIENTS = (
    *("seed", "accuracy", "best", "loss", "SNR dB", "bits", "bytes"),
    *("ε asked", "ε proven", "ε update", "ε client"),
)
HOSPITALS = ("seed", "accuracy", "AUC", "records", "bits", "bytes", "price", "ε of a patient", "δ")
PEOPLE = ("seed", "accuracy", "people", "a round", "bytes each", "ε of a person", "δ")


def figures(metrics: RoundMetrics) -> str:
    """The figures beside the bar."""
    told = [f"{metrics.bytes_per_client:,.0f} B/client"]
    if metrics.snr_db is not None:
        told.insert(0, f"SNR {metrics.snr_db:.1f} dB")
    if metrics.validation_accuracy is not None:
        told.insert(0, f"accuracy {metrics.validation_accuracy:.2%}")
    if metrics.train_loss is not None:
        told.insert(0, f"loss {metrics.train_loss:.4g}")
    return "  ".join(told)


def print_results(results: Sequence[Result]) -> None:
    """The table of all seeds, their mean, and what diverged."""
    console = make_console()
    tables = {"people": _people_table, "hospitals": _hospitals_table}
    made = next((make for name, make in tables.items() if name in results[0].facts), _clients_table)
    print_table(console, made(results))
    accuracies = [r.test_accuracy for r in results if r.test_accuracy is not None]
    if len(accuracies) > 1:
        spread = statistics.stdev(accuracies)
        console.print(f"test accuracy {statistics.mean(accuracies):.2%} ± {spread:.2%}")
    for result in results:
        if result.diverged:
            console.print(f"[bold red]seed {result.config.seed}: {result.diverged}")


def _clients_table(results: Sequence[Result]) -> Table:
    settings = results[0].config.as_dict()
    table = make_table(
        f"{settings['model']} on {settings['data']}: {settings['scheme']}, "
        f"{settings['clients']} clients, {results[0].dimension:,} parameters",
        "accuracy on the test set, of the best validation round; bits per parameter and bytes per "
        "client and round, as sent; SNR is 20·log10 of the mean over clients of "
        "var(h)/var(h−h̃); ε per sample unless said otherwise, proven against the server.",
        CLIENTS,
        left=1,
    )
    for result in results:
        if result.history:
            last = result.history[-1]
            table.add_row(
                str(result.config.seed),
                _percent(result.test_accuracy),
                str(result.best_round),
                f"{last.train_loss:.4g}",
                f"{last.snr_db:.1f}",
                f"{last.bits_per_parameter:.2f}",
                f"{last.bytes_per_client:,.0f}",
                epsilon_text(last.nominal_sample),
                epsilon_text(last.epsilon_sample),
                epsilon_text(last.epsilon_update),
                epsilon_text(last.epsilon_client),
            )
    return table


def _people_table(results: Sequence[Result]) -> Table:
    settings, facts = results[0].config.as_dict(), results[0].facts
    again = ", samples given out more than once" if facts["is_resampled"] else ""
    table = make_table(
        f"{settings['model']} on {settings['data']}: {settings['scheme']}, {facts['people']:,} "
        f"people of {settings['examples']} samples{again}, {results[0].dimension:,} parameters",
        f"accuracy on the test set, after the last round. {facts['guarantee']}",
        PEOPLE,
        left=1,
    )
    for result in results:
        said = result.summary
        table.add_row(
            str(result.config.seed),
            _percent(result.test_accuracy),
            f"{said['people']:,}",
            f"{said['people_a_round']:,}",
            f"{said['bytes_sent'] / max(1, said['reports']):,.1f}",
            epsilon_text(result.epsilon),
            f"{said['delta']:g}",
        )
    return table


def _hospitals_table(results: Sequence[Result]) -> Table:
    settings, facts = results[0].config.as_dict(), results[0].facts
    baseline = settings["baseline"]
    against = "" if baseline is None else f", baseline {baseline}"
    table = make_table(
        f"{settings['model']} on {settings['data']}: {facts['hospitals']} hospitals, "
        f"{settings['rounds']} rounds, {results[0].dimension:,} parameters{against}",
        "accuracy on the test set, after the last round. bits per parameter and bytes per hospital "
        "and round. price: squared error of a mean beside central noise, colluders apart. "
        f"{facts['guarantee']}",
        HOSPITALS,
        left=1,
    )
    for result in results:
        said, last = result.summary, result.history[-1] if result.history else None
        auc, price = said.get("test_auc"), said.get("price")
        table.add_row(
            str(result.config.seed),
            _percent(result.test_accuracy),
            "" if auc is None else f"{auc:.4f}",
            f"{sum(said['records']):,}",
            "" if last is None else f"{last.bits_per_parameter:g}",
            "" if last is None else f"{last.bytes_per_client:,.0f}",
            "" if price is None else f"{price:.3f}",
            epsilon_text(result.epsilon),
            f"{said['delta']:g}",
        )
    return table


def _percent(accuracy: float | None) -> str:
    return "" if accuracy is None else f"{accuracy:.2%}"
