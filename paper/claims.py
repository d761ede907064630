"""What the prose of pages/results.md.j2 says of the kept results, as checks that can fail.

A claim stands beside the sentence it supports. When new results break a claim, the page is not
written: a person reads the numbers and rewrites the sentence and its claim.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from paper import cells, cifar, mnist
from paper.attack_tables import fig5_curves, hit_labels
from paper.kept import Results
from paper.pages import ClaimError
from paper.words import decibels


@dataclass(frozen=True)
class Claim:
    """A statement about some sections, and whether it holds."""

    name: str
    sections: tuple[str, ...]
    statement: str
    holds: Callable[[Results], bool]


CLAIMS: list[Claim] = []


def claim(*sections: str) -> Callable[[Callable[[Results], bool]], Callable[[Results], bool]]:
    """Register a check under its name; its docstring is the statement."""

    def register(holds: Callable[[Results], bool]) -> Callable[[Results], bool]:
        CLAIMS.append(Claim(holds.__name__, sections, holds.__doc__ or "", holds))
        return holds

    return register


def failed(results: Results) -> list[Claim]:
    """The claims about the sections that are there and do not hold."""
    there = set(results.sections)
    return [one for one in CLAIMS if there.issuperset(one.sections) and not one.holds(results)]


def check(results: Results) -> None:
    """Raise an error that lists the claims that fail."""
    found = failed(results)
    if found:
        lines = "".join(f"- {one.statement}\n" for one in found)
        raise ClaimError(
            f"the results do not support these sentences of paper/pages/results.md.j2:\n{lines}"
            "rewrite each sentence and its claim in paper/claims.py"
        )


# Table I


@claim("table1")
def mlp_is_better(results: Results) -> bool:
    """Our MLP is better than the code's in every row."""
    return bool((mnist.above_the_code(results.table1, "mlp") > 0).all())


@claim("table1")
def laplace_snr_is_the_laws(results: Results) -> bool:
    """20·log10(1/4.5) = −13.1 dB is what we measure for `laplace`."""
    linear = results.table1.query("model == 'linear' and label == 'laplace'")
    return round(decibels(linear.snr), 1) == round(20 * math.log10(1 / 4.5), 1) == -13.1


@claim("table1")
def sdq_snr_is_lower(results: Results) -> bool:
    """The SNR of `sdq` at R = 1 is lower than the code's; its error is Δ²/12 = 1/3."""
    linear = results.table1.query("model == 'linear' and label == 'sdq'")
    is_third = math.isclose(mnist.schemes_at()["sdq"].distortion, 1 / 3)
    return is_third and decibels(linear.snr) < mnist.AUTHORS_SNR_DB["sdq"]


@claim("table1")
def cnn_differs_by_noise(results: Results) -> bool:
    """The CNN is within two standard errors of the code in all rows, `none` within one."""
    gaps = _in_errors(results.table1, "cnn")
    return bool((gaps < 2).all() and gaps["none"] < 1)


@claim("table1_code")
def as_the_code_is_the_code(results: Results) -> bool:
    """As the code, all rows of all models are within two standard errors of it."""
    return all((_in_errors(results.table1_code, model) < 2).all() for model in mnist.MODELS)


def _in_errors(runs: pd.DataFrame, model: str) -> pd.Series:
    """How far each row is from the code's single run, in standard errors of the difference."""
    gaps = mnist.above_the_code(runs, model)
    return gaps.abs() / mnist.difference_error(runs, model)[gaps.index]


@claim("table1")
def epsilons_hold_but_for_jopeq(results: Results) -> bool:
    """`jopeq` spends more than asked for; `laplace+sdq` and `response` do not."""
    return _holding(results.table1) == {"laplace", "laplace+sdq", "response"}


def _holding(runs: pd.DataFrame) -> set[str]:
    """The private schemes whose rows all hold the ε that was asked for."""
    private = runs[runs.nominal.notna()]
    holds = private.epsilon <= private.nominal * (1 + 1e-9)
    names = private.label.str.partition(",")[0]
    return set(names) - set(names[~holds])


# Figures 2 and 3


@claim("fig2")
def jopeq_hardly_loses(results: Results) -> bool:
    """`jopeq` hardly loses when the rate falls (0.2 dB), the separate design does (2 dB)."""
    grid = mnist.fig2_grid(results.fig2)
    loss = grid[8.0] - grid.min(axis=1)
    return bool(
        (loss.xs("jopeq", level="scheme") < 0.2).all()
        and (loss.xs("laplace+sdq", level="scheme") > 2).all()
    )


@claim("fig2")
def clamps_lift_one_bit(results: Results) -> bool:
    """At R = 1 entries overload; `laplace+sdq` beats R = 2, at ε = 3 `jopeq` beats R = 8."""
    snr, share = (mnist.fig2_grid(results.fig2, name) for name in ("snr", "overload"))
    separate, loads = (grid.xs("laplace+sdq", level="scheme") for grid in (snr, share))
    joint, joint_loads = (grid.loc[3.0, "jopeq"] for grid in (snr, share))
    return bool(
        (separate[1.0] > separate[2.0]).all()
        and (loads[1.0] > 10 * loads[2.0]).all()
        and joint[1.0] > joint[8.0]
        and joint_loads[1.0] > 0.01 > 100 * joint_loads[8.0]
    )


@claim("fig2")
def noise_needs_no_room_in_sdq(results: Results) -> bool:
    """In plain `sdq` the paper's γ is worse than the unit ball and a cell up to R = 7, not at 8."""
    supports = mnist.fig2_supports(results.fig2)
    lost = supports.loc[mnist.BALL] - supports[supports.index.str.startswith("γ")]
    return bool((lost.loc[:, :7.0] > 0).all(axis=None) and (lost[8.0] < 0).all())


@claim("fig2")
def response_is_best(results: Results) -> bool:
    """`response` is the best of all from two bits on, and gains most from the second bit."""
    grid = mnist.fig2_grid(results.fig2)
    by_scheme = grid.loc[:, 2.0:].stack().unstack("scheme")
    steps = grid.diff(axis=1)
    second = steps[2.0].xs("response", level="scheme")
    is_most = second >= steps.groupby("epsilon").max().max(axis=1)
    return bool((by_scheme.idxmax(axis=1) == "response").all() and is_most.all())


@claim("fig3")
def curves_meet(results: Results) -> bool:
    """The curves differ in the first rounds (1 point) and end close together (0.5 points)."""
    first, last = (mnist.spread_after(results.fig3, place) for place in (0, -1))
    return first > 1.0 and last < 0.5


# Table II


@claim("table2")
def lower_rate_is_better(results: Results) -> bool:
    """lr 0.03 has the best validation accuracy in all schemes; lr 0.2 (one seed) is below 0.1."""
    gains = cifar.gains(results.table2)
    is_one = results.table2.seed[results.table2.lr == cifar.TOO_HIGH].nunique() == 1
    is_best = (cifar.best_rates(results.table2) == 0.03).all()
    return is_one and bool(is_best and (gains.gain[gains.lr == cifar.TOO_HIGH] < 0).all())


@claim("table2")
def lowest_rate_still_rises(results: Results) -> bool:
    """At lr 0.01 the last ten rounds are a point or more above the ten before, in every scheme."""
    return bool((cifar.last_changes(results.table2, cifar.TOO_LOW) > 1.0).all())


@claim("longer")
def more_rounds_make_rates_even(results: Results) -> bool:
    """After 480 rounds lr 0.01 and 0.03 are less than a point apart, and far above 160 rounds."""
    ends = results.longer.pivot_table("test_accuracy", cifar.ROW, "lr")
    before = results.table2[results.table2.seed == 0].set_index([*cifar.ROW, "lr"]).test_accuracy
    after = results.longer.set_index([*cifar.ROW, "lr"]).test_accuracy
    is_even = (ends[cifar.TOO_LOW] - ends[0.03]).abs() < 0.01
    return bool(is_even.all() and (after - before.reindex(after.index) > 0.02).all())


@claim("table2")
def calibration_costs_accuracy(results: Results) -> bool:
    """Calibrating `jopeq` to the ε asked for costs accuracy in every column."""
    return bool((cifar.calibration_costs(results.table2) < 0).all(axis=None))


@claim("table2")
def only_separate_is_below_the_code(results: Results) -> bool:
    """Of the rows beside the code, only `t+sdq`, published, is below it."""
    rows = cifar.beside_the_code(results.table2).index
    return [label for label, gap in rows if gap < 0] == ["t+sdq, published"]


@claim("table2")
def published_noise_is_too_small(results: Results) -> bool:
    """The published (s², ν) do not hold the ε they stand for."""
    published = results.table2[results.table2.label.str.contains("published")]
    return bool((published.epsilon > 1.5 * published.nominal).all())


@claim("table2")
def calibrated_rows_hold(results: Results) -> bool:
    """`t`, `t+sdq` and `response` hold the ε that is asked for; `jopeq` does not."""
    calibrated = results.table2[~results.table2.label.str.contains("published")]
    return _holding(calibrated) == {"t", "t+sdq", "response"}


@claim("snr")
def code_gives_the_papers_snr(results: Results) -> bool:
    """The code's way reproduces the paper's SNRs to 0.5 dB, and each other way is further off."""
    rows = results.snr
    off = (rows.code - rows.paper).abs()
    return bool((off < 0.5).all() and ((rows.whole - rows.paper).abs() > off).all())


# Figures 4 to 6


@claim()
def attacks_are_final(results: Results) -> bool:
    """No attack would change with more of the iterations that the page names."""
    frames = (results.fig4, results.fig5, results.fig6)
    return all(frame.final.all() for frame in frames if not frame.empty)


@claim("fig6")
def papers_attack_needs_a_wide_support(results: Results) -> bool:
    """The paper's attack recovers images from fine `sdq` alone, and with a wide support alone."""
    hits = {"sdq, R=8, γ=3", "sdq, R=16, γ=3", "sdq, R=16, γ=40"}
    return hit_labels(results.fig6, "label")[0] == hits


@claim("fig6")
def supports_hold_the_entries(results: Results) -> bool:
    """The largest entry lies beyond the unit ball, at three times the rms, and within γ = 3."""
    return bool(3.0 < results.fig6.peak.max() < 3.0 * cells.WIDE)


@claim("fig6")
def early_stop_recovers_some(results: Results) -> bool:
    """The paper's attack stopped early recovers images from `sdq` at R = 8 and 16 only."""
    hits = {"sdq, R=8", "sdq, R=16", "sdq, R=8, γ=3", "sdq, R=16, γ=3"}
    return hit_labels(results.fig6, "label", "stopped early")[0] == hits


@claim("fig6")
def dlg_recovers_none(results: Results) -> bool:
    """DLG and iDLG recover none from any of the three schemes they were run on."""
    coded = {"sdq, R=8", "jopeq, ε=3, R=8", "response, ε=3, R=8"}
    return all(hit_labels(results.fig6, method) == (set(), coded) for method in ("dlg", "idlg"))


@claim("fig6")
def inverting_recovers_compressed(results: Results) -> bool:
    """Inverting gradients recovers images from `sdq` at R = 8, none from the private schemes."""
    private = {"jopeq, ε=3, R=8", "response, ε=3, R=8"}
    return hit_labels(results.fig6, "inverting") == ({"sdq, R=8"}, private)


@claim("fig6")
def adaptive_recovers_most(results: Results) -> bool:
    """The adaptive attacker recovers images from every scheme but `jopeq` at ε = 3."""
    return hit_labels(results.fig6, "adaptive")[1] == {"jopeq, ε=3, R=8"}


@claim("fig4")
def every_epoch_is_attacked(results: Results) -> bool:
    """Every epoch from 0 to 30 is attacked; raw gradients adaptively before training only."""
    by_curve = results.fig4.groupby(["label", "method"])["epoch"].agg(set)
    is_whole = all(epochs == set(range(cells.EPOCHS + 1)) for epochs in by_curve)
    return is_whole and ("raw", "adaptive") not in by_curve.index


@claim("fig4")
def private_gradients_leak_most_early(results: Results) -> bool:
    """SSIM of raw gradients falls with training; adaptively that of private ones rises first."""
    ssim = results.fig4.pivot_table("mean_ssim", "epoch", ["method", "label"])
    raw, private = ssim["label", "raw"], ssim["adaptive"].drop(columns="sdq, R=8")
    return bool(raw.idxmax() == 0 and private.idxmax().between(1, 10).all())


@claim("fig5")
def no_noise_is_flat(results: Results) -> bool:
    """`jopeq` adds no noise at R = 4, and at R = 8 from ε = 100 on; there the MSE is flat."""
    quiet = {place for place, coder in cells.fig5_schemes().items() if coder.noise is None}
    expected = {("jopeq, R=4", epsilon) for epsilon in cells.FIG5_EPSILONS}
    expected |= {("jopeq, R=8", epsilon) for epsilon in cells.FIG5_EPSILONS if epsilon >= 100}
    curves = fig5_curves(results.fig5)
    places = zip(curves.curve, curves.epsilon, strict=True)
    is_it = [name == "jopeq, R=4" or (name == "jopeq, R=8" and e > 99) for name, e in places]
    groups = curves[is_it].groupby(["curve", "method"])["mean_mse"]
    is_flat = bool((groups.max() < 1.05 * groups.min()).all())
    shown = {place for place in quiet if place[0] in ("jopeq, R=4", "jopeq, R=8")}
    return is_flat and shown == expected


@claim("fig5")
def clipping_stops_the_papers_attack(results: Results) -> bool:
    """For `laplace` and R = 16 the paper's attack levels off; the adaptive one comes far closer."""
    curves = fig5_curves(results.fig5)
    curves = curves[curves.curve.isin(["laplace", "jopeq, R=16"])]
    by_epsilon = curves.pivot_table("mean_mse", ["method", "curve"], "epsilon")
    last, before = by_epsilon.iloc[:, -1], by_epsilon.iloc[:, -4]
    is_level = (last.loc["label"] / before.loc["label"]).between(0.95, 1.05)
    is_closer = last.loc["adaptive"] < last.loc["label"] / 100
    return bool(is_level.all() and is_closer.all())


@claim("fig5")
def without_clipping_all_is_recovered(results: Results) -> bool:
    """At a spread of 8 nothing is clipped; from some ε on the paper's attack gets all images."""
    free = fig5_curves(results.fig5)[results.fig5.label.str.contains("no clipping")]
    is_whole = (free.hits == free.images).groupby(free.epsilon).all()
    is_free = free.peak.max() < cells.UNCLIPPED
    return bool(is_free and is_whole.is_monotonic_increasing and is_whole.iloc[-1])


@claim("repository")
def repository_is_met_before_training(results: Results) -> bool:
    """The repository's SSIMs are met at epochs 0 and 5 and lower later; of `jopeq` none is left."""
    found = results.repository.pivot_table("mean_ssim", "epoch", "label")
    off, jopeq = found["raw"] - list(cells.REPOSITORY_SSIM["raw"]), found["jopeq, ε=3, R=8"]
    return bool(off[[0, 5]].abs().max() < 0.05 and off[29] > 0.1 and jopeq.max() < 0.02)
