"""The part of docs/results.md that shows Table II."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from jopeq.experiments.cifar import (
    COLUMNS,
    GRID,
    LEARNING_RATE,
    PUBLISHED,
    ROUNDS,
    SEEDS,
    TOO_HIGH,
    authors_rate,
    schemes_at,
    table2_rows,
)
from jopeq.experiments.cifar_rates import calibration_verdict, rates_verdict, rising
from jopeq.experiments.cifar_report import (
    authors_markdown,
    conventions_markdown,
    largest_gap,
    save_table2,
    shown,
    table2_markdown,
    verdict,
)
from jopeq.experiments.page_words import counted, reflow
from jopeq.experiments.snr_conventions import read_conventions
from jopeq.federated.runs import Run, read

_SECTION = """
## Table II: CIFAR-10

`jopeq reproduce table2 --data-dir DIR --device cuda`. K = {clients} clients, the CNN of three
convolutions and four dense layers, pairs of entries on A2, lr {lr:g} as in the paper, momentum
{momentum:g}, batch {batch_size}, τ = {local_steps} local steps, {rounds} rounds, {seeds},
PyTorch {torch}{products}.{progress}

- *accuracy*: in percent of the test set, at the best validation round; mean ± standard deviation
  over seeds. *SNR*: 20·log10, likewise.
- *published*: the authors' (s², ν), {published}. The other rows
  of `t`, `t+sdq` and `jopeq` are calibrated to the ε that is asked for.
- *authors' points*: as many as their code has.
- *best lr*: of {grid}, by validation accuracy after as many rounds, mean of the seeds that both
  rates have.
{rising}
{table}

{rates} {calibration}

![Validation accuracy against rounds]({figures}/table2.png)
"""

_RISING = """- Still changing: validation accuracy, mean of the last ten rounds against the ten
  before, by {changes}. Runs that diverged are left out.
"""

_AUTHORS = """
Beside the published code, run once on the same files with the same learning rate, momentum, batch
and τ, at R = 1, ε = 3, (s², ν) = (0.2, 4), each after as many rounds:

{table}

{verdict} SNRs are means over all rounds. "As the code quantizes" is with its number of points, its
γ and a scale for every tensor.
The code keeps the momentum from one round to the next and, by default, lowers the learning rate
where a client's loss stalls; here every round starts without momentum and the rate is constant. A
client has {batches} batches: there τ ends with them, here it goes on in a new order.
"""

_LAWS = """
The published (s², ν) do not hold the ε they stand for: with the true diameter of the unit ball and
the exponent (ν + L)/2 of the density, `t` spends {spent}. The
corrected rows carry {variance} the published noise variance.
`t`, `t+sdq`, `staircase` and `response` hold the ε that is proven against the server; `jopeq` adds
less noise than `t`, and its proven ε is that of what it adds. An ε is of one sample: a pair of
entries on A2, a single entry for `response`, which spends twice that on a pair. All of these scale
by the update's norm, which travels in the clear.
"""

_SNR = """
### Why the SNRs of the paper are others

{table}

From left to right, each column changes one thing more, on Gaussian updates of the model's size:

- *as in the code*: every tensor has a scale of its own, and the SNR is the mean over tensors too.
  This reproduces the paper's column to {gap:.1f} dB. Half of the tensors are biases of 10 to 128
  entries, where the sample variance of heavy-tailed noise is often small and its inverse large.
- *one scale, one SNR*: the paper's definition, var(h)/var(h − h̃) of whole updates.
- *γ of the text*: 1.5·(1 + s²ν/(ν − 2)), where the code has the square root of the bracket.
- *our points*: the code clamps to 2^R + 1 levels in each direction of a skewed basis, {points}
  points, which take {bits} bits an entry, and rounds in that basis, whose cells are
  parallelograms; ours are the points of lowest energy, as many, with hexagonal cells. `sdq` has no
  noise to leave room for: its support here is the unit ball and a cell around it, not γ = 1.5.
- *at R bits*: {honest} points, which is what R bits can name.
"""


def table2_section(results: Path, figures: Path, relative: str) -> str:
    """The section, and its figure in ``figures``; nothing without runs."""
    kept = read(results / "table2.jsonl")
    if not any(run.settings["lr"] == LEARNING_RATE for run in kept):
        return ""
    runs = shown(kept)
    save_table2(runs, figures / "table2.png")
    text = _SECTION.format(
        **_setting(runs),
        progress=_progress(kept),
        table=table2_markdown(runs),
        rates=rates_verdict(runs),
        calibration=calibration_verdict(runs),
        figures=relative,
    )
    if verdict(runs):
        samples = 40_000 // runs[0].settings["clients"]
        batches = -(-samples // runs[0].settings["batch_size"])
        table = authors_markdown(runs)
        text += _AUTHORS.format(table=table, verdict=verdict(runs), batches=batches)
    text += _laws()
    rows = read_conventions(results / "table2_snr.jsonl")
    if rows:
        rates = sorted({rate for rate, _ in COLUMNS})
        text += _SNR.format(
            table=conventions_markdown(rows),
            gap=largest_gap(rows),
            points=_pair(f"{(2**rate + 1) ** 2:g}" for rate in rates),
            bits=_pair(f"{authors_rate(rate):.2f}" for rate in rates),
            honest=_pair(f"{2 ** (2 * rate):g}" for rate in rates),
        )
    return reflow(text)


def _laws() -> str:
    spent, shares = [], []
    for epsilon in sorted({epsilon for _, epsilon in COLUMNS}):
        rows = schemes_at(COLUMNS[0][0], epsilon)
        published, ours = rows["t, published"], rows["t"]
        spent.append(f"{published.guarantee.epsilon:.2f} where {epsilon:g} is asked for")
        shares.append(f"{ours.distortion / published.distortion:.1f} times (ε = {epsilon:g})")
    return _LAWS.format(spent=_pair(spent), variance=_pair(shares))


def _pair(words: Iterable[str]) -> str:
    return " and ".join(words)


def _setting(runs: list[Run]) -> dict[str, object]:
    settings = next(run.settings for run in runs if run.settings["lr"] == LEARNING_RATE)
    rounds = next(run.rounds for run in runs if run.settings["lr"] == LEARNING_RATE)
    tried = sorted({LEARNING_RATE, *(lr for lr in GRID if _has(runs, lr))})
    changes = rising(runs)
    published = (f"({s2:g}, {nu:g}) for ε = {epsilon:g}" for epsilon, (s2, nu) in PUBLISHED.items())
    return {
        **settings,
        "torch": _pair(sorted({str(run.settings["torch"]).split("+")[0] for run in runs})),
        "products": _products(runs),
        "published": _pair(published),
        "rounds": rounds,
        "rising": _RISING.format(changes=changes) if changes else "",
        "seeds": counted(len({run.seed for run in runs}), "seed"),
        "grid": ", ".join(f"{lr:g}" for lr in tried),
    }


def _products(runs: list[Run]) -> str:
    """Which runs multiplied on tensor cores."""
    fast = {run.settings["lr"] for run in runs if run.settings.get("tf32")}
    if not fast:
        return ""
    others = {run.settings["lr"] for run in runs if not run.settings.get("tf32")}
    rest = f" (float32 at lr {_pair(f'{lr:g}' for lr in sorted(others))})" if others else ""
    return f", products in TF32{rest}"


def _progress(kept: list[Run]) -> str:
    """What is still to be run: a table that is not whole must say so."""
    rates = {LEARNING_RATE, *GRID} - {TOO_HIGH}
    planned = sum(len(coders) for coders in table2_rows().values()) * SEEDS * len(rates)
    done = sum(run.settings["lr"] in rates and run.rounds == ROUNDS for run in kept)
    if done >= planned:
        return ""
    return f" **{done} of {planned} runs of {ROUNDS} rounds have been made so far.**"


def _has(runs: list[Run], lr: float) -> bool:
    return any(run.settings["lr"] == lr for run in runs)
