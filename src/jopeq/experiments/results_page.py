"""docs/results.md, written from the kept runs: nothing on it is typed by hand but the prose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from jopeq.experiments.attack_page import attack_section
from jopeq.experiments.cifar_page import table2_section
from jopeq.experiments.mnist import (
    AUTHORS_CODE,
    EPSILON,
    FIG2_ROUNDS,
    PAPER,
    RATE,
    ROUNDS,
    schemes_at,
)
from jopeq.experiments.mnist_report import (
    fig2_markdown,
    fig3_runs,
    save_fig2,
    save_fig3,
    table1_markdown,
)
from jopeq.experiments.mnist_words import (
    clamped_words,
    cnn_words,
    last_spread,
    mlp_words,
    used_words,
)
from jopeq.federated.runs import Run, read

_HEAD = """# Results

The tables and figures on this page are made by commands from runs that are kept in `results/`; delete
a file there and the command trains again. Runs with other numbers of rounds than the paper's are kept
there too, but not shown.{versions}
"""

_TABLE1 = """
## Table I: MNIST, three models

`jopeq reproduce table1 --data-dir DIR`. K = {clients} clients, R = {rate:g}, ε = {epsilon:g} per entry,
lr {lr:g}, momentum {momentum:g}, batch {batch_size}, τ = {local_steps} local steps, {rounds} rounds, {seeds} seeds;
test accuracy in percent of the best validation round, mean ± standard deviation over seeds. "Authors'
code" is the published code run once on the same files with the same setting.

{table}

Where the columns differ, and why:

- The paper prints lower accuracies than its own code reaches with the published settings (linear:
  {paper:.0f} against {code:.0f}); ours are to be compared with the code's.
{mlp}- SNR: noise of variance 1/2 in scaled units, times the square of the paper's spread of 3, is 4.5 times
  an update's energy, 20·log10(1/4.5) = −13.1 dB, which is what we measure for `laplace`. The code
  scales every tensor by itself and averages the ratios of the 7,840 weights and of the ten biases, whose
  few numbers give a larger ratio on average: Gaussian tensors treated so give −10.6 dB, near its −10.1.
- The code's "R = 1" has three levels; ours has two, which is what one bit can name. So the SNR of `sdq`
  at R = 1 is lower here: Δ = 2 and an error of Δ²/12 = 1/3 in scaled units.
{cnn}- `staircase` is clamped to one bit here; Figure 2 shows it entropy-coded where that fits the rate.
- All of these scale by the update's norm, as the paper does, which travels in the clear: the ε of this
  table says nothing about it.
- ε is per entry. `jopeq` is asked for {epsilon:g} and spends {spent:.2f} against the server; `laplace+sdq`, `staircase`
  and `response` hold what they promise ([proofs](guarantees.md)).
"""

_FIG2 = """
## Figure 2: SNR against rate

`jopeq reproduce fig2 --data-dir DIR`. SNR of the decoded updates, mean over clients of var(h)/var(h − h̃),
in dB as 20·log10 (the paper's convention), linear model on MNIST, mean over the first {rounds} rounds.

![SNR against rate]({figures}/fig2.png)

{table}

As in the paper, `jopeq` hardly loses when the rate falls, and the separate design does. `staircase`
(entropy-coded in at most R bits{clamped}) lies above both and keeps its ε;
`response` gains most from every bit, since its error is not that of added noise. The axis is the rate
that is allowed{used}.
"""

_FIG3 = """
## Figure 3: convergence

`jopeq reproduce fig3 --data-dir DIR`. Linear model on MNIST, R = {rate:g}, ε = {epsilon:g}; line: mean over seeds, band:
their range.

![Validation accuracy against rounds]({figures}/fig3.png)

With ten clients and small steps the noise averages out: the curves differ in the first rounds and end
within {spread:.1f} points of each other. The paper shows the separate design and MVU falling
behind; in this setting they hardly do.
"""


def write_page(results: Path, page: Path, figures: Path) -> None:
    """Write the page and its figures from what ``results`` holds; parts without runs are left out."""
    figures.mkdir(parents=True, exist_ok=True)
    relative = figures.relative_to(page.parent).as_posix()
    kept = read(results / "table1.jsonl")
    table1 = [run for run in kept if run.rounds == ROUNDS]
    fig2 = [run for run in read(results / "fig2.jsonl") if run.rounds == FIG2_ROUNDS]
    fig3 = fig3_runs([*kept, *read(results / "fig3.jsonl")])
    shown = {"Table I": table1, "Figure 3": fig3, "Figure 2": fig2}
    parts = [_HEAD.format(versions=_versions(shown))]
    if table1:
        parts.append(_TABLE1.format(**_setting(table1), table=table1_markdown(table1)))
    if fig2:
        save_fig2(fig2, figures / "fig2.png")
        parts.append(
            _FIG2.format(
                figures=relative,
                rounds=fig2[0].rounds,
                table=fig2_markdown(fig2),
                clamped=clamped_words(fig2),
                used=used_words(fig2),
            )
        )
    if fig3:
        save_fig3(fig3, figures / "fig3.png")
        spread = last_spread(fig3)
        parts.append(_FIG3.format(figures=relative, rate=RATE, epsilon=EPSILON, spread=spread))
    parts.append(table2_section(results, figures, relative))
    parts.append(attack_section(results, figures, relative))
    page.write_text("".join(parts), encoding="utf-8")


def _versions(shown: Mapping[str, Sequence[Run]]) -> str:
    """What was run with which PyTorch, those of one version together."""
    made_with: dict[str, list[str]] = {}
    for name, runs in shown.items():
        numbers = sorted({_version(run) for run in runs})
        if numbers:
            made_with.setdefault(" and ".join(numbers), []).append(name)
    if not made_with:
        return ""
    (version, names), *others = made_with.items()
    verb = "were" if len(names) > 1 else "was"
    first = f" {' and '.join(names)} {verb} run with PyTorch {version}"
    rest = [f"{' and '.join(names)} with {version}" for version, names in others]
    return ", ".join([first, *rest]) + "."


def _version(run: Run) -> str:
    """Major and minor number.

    >>> from types import SimpleNamespace
    >>> _version(SimpleNamespace(settings={"torch": "2.11.0+cu130"}))
    '2.11'
    """
    found = run.settings.get("torch")
    return "(version not recorded)" if found is None else ".".join(str(found).split(".")[:2])


def _setting(runs: list[Run]) -> dict[str, object]:
    return {
        **runs[0].settings,
        "rate": RATE,
        "epsilon": EPSILON,
        "rounds": max(run.rounds for run in runs),
        "seeds": len({run.seed for run in runs}),
        "paper": 100 * PAPER["none"][0],
        "code": 100 * AUTHORS_CODE["none"][0],
        "mlp": mlp_words(runs),
        "cnn": cnn_words(runs),
        "spent": schemes_at()["jopeq"].guarantee.epsilon,
    }
