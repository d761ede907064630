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
    return make_table(
        f"{settings['model']} on {settings['data']}: {settings['scheme']}, "
        f"{settings['clients']} clients, {results[0].dimension:,} parameters",
        {
            "seed": _seed,
            "accuracy": _accuracy,
            "best": lambda result: str(result.best_round),
            "loss": lambda result: f"{result.history[-1].train_loss:.4g}",
            "SNR dB": lambda result: f"{result.history[-1].snr_db:.1f}",
            "bits": lambda result: f"{result.history[-1].bits_per_parameter:.2f}",
            "bytes": lambda result: f"{result.history[-1].bytes_per_client:,.0f}",
            "ε asked": lambda result: epsilon_text(result.history[-1].nominal_sample),
            "ε proven": lambda result: epsilon_text(result.history[-1].epsilon_sample),
            "ε update": lambda result: epsilon_text(result.history[-1].epsilon_update),
            "ε client": lambda result: epsilon_text(result.history[-1].epsilon_client),
        },
        [result for result in results if result.history],
        left=1,
        caption="accuracy on the test set, of the best validation round; bits per parameter and "
        "bytes per client and round, as sent; SNR is 20·log10 of the mean over clients of "
        "var(h)/var(h−h̃); ε per sample unless said otherwise, proven against the server.",
    )


def _people_table(results: Sequence[Result]) -> Table:
    settings, facts = results[0].config.as_dict(), results[0].facts
    again = ", samples given out more than once" if facts["is_resampled"] else ""
    return make_table(
        f"{settings['model']} on {settings['data']}: {settings['scheme']}, {facts['people']:,} "
        f"people of {settings['examples']} samples{again}, {results[0].dimension:,} parameters",
        {
            "seed": _seed,
            "accuracy": _accuracy,
            "people": lambda result: f"{result.summary['people']:,}",
            "a round": lambda result: f"{result.summary['people_a_round']:,}",
            "bytes each": _bytes_each,
            "ε of a person": lambda result: epsilon_text(result.epsilon),
            "δ": lambda result: f"{result.summary['delta']:g}",
        },
        results,
        left=1,
        caption=f"accuracy on the test set, after the last round. {facts['guarantee']}",
    )


def _bytes_each(result: Result) -> str:
    said = result.summary
    return f"{said['bytes_sent'] / max(1, said['reports']):,.1f}"


def _hospitals_table(results: Sequence[Result]) -> Table:
    settings, facts = results[0].config.as_dict(), results[0].facts
    baseline = settings["baseline"]
    against = "" if baseline is None else f", baseline {baseline}"

    def last(result: Result, name: str, form: str) -> str:
        return format(getattr(result.history[-1], name), form) if result.history else ""

    return make_table(
        f"{settings['model']} on {settings['data']}: {facts['hospitals']} hospitals, "
        f"{settings['rounds']} rounds, {results[0].dimension:,} parameters{against}",
        {
            "seed": _seed,
            "accuracy": _accuracy,
            "AUC": lambda result: _or_empty(result.summary.get("test_auc"), ".4f"),
            "records": lambda result: f"{sum(result.summary['records']):,}",
            "bits": lambda result: last(result, "bits_per_parameter", "g"),
            "bytes": lambda result: last(result, "bytes_per_client", ",.0f"),
            "price": lambda result: _or_empty(result.summary.get("price"), ".3f"),
            "ε of a patient": lambda result: epsilon_text(result.epsilon),
            "δ": lambda result: f"{result.summary['delta']:g}",
        },
        results,
        left=1,
        caption="accuracy on the test set, after the last round. bits per parameter and bytes per "
        "hospital and round. price: squared error of a mean beside central noise, colluders apart. "
        f"{facts['guarantee']}",
    )


def _seed(result: Result) -> str:
    return str(result.config.seed)


def _accuracy(result: Result) -> str:
    return _or_empty(result.test_accuracy, ".2%")


def _or_empty(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
