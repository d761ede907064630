"""Check what the prose of pages/paper.md.j2 says about the kept results.

When new results break a claim, the page is not written: somebody reads the numbers and rewrites
the sentence and its claim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from paper import cells, cifar, mnist
from paper.cells import fig5_curves, hit_labels
from paper.words import decibels, refuse

if TYPE_CHECKING:
    from paper.results import Results

Claims = Iterator[tuple[str, bool]]


def failed(results: Results) -> list[str]:
    """The claims about the kept sections that do not hold."""
    there = [of for section, of in SECTIONS.items() if section in results.sections]
    return [sentence for of in there for sentence, holds in of(results) if not holds]


def check(results: Results) -> None:
    """Raise an error that lists the claims that fail."""
    refuse(failed(results), "paper/pages/paper.md.j2", "paper/claims.py")


def _table1(results: Results) -> Claims:
    runs, codes = results.table1, mnist.AUTHORS_SNR_DB
    snr = {row: decibels(mine.snr) for row, mine in runs[runs.model == "linear"].groupby("label")}
    better = (mnist.above_the_code(runs, "mlp") > 0).all()
    yield "our MLP is better than the code's in every row", bool(better)
    law = round(20 * math.log10(1 / 4.5), 1)
    is_it = round(snr["laplace"], 1) == law == -13.1
    yield "20·log10(1/4.5) = −13.1 dB is what we measure for `laplace`", is_it
    is_third = math.isclose(mnist.schemes_at()["sdq"].distortion, 1 / 3)
    lower = is_third and snr["sdq"] < codes["sdq"]
    yield "the SNR of `sdq` at R = 1 is lower than the code's; its error is Δ²/12 = 1/3", lower
    gaps = _in_errors(runs, "cnn")
    near = bool((gaps < 2).all() and gaps["none"] < 1)
    yield "the CNN is within two standard errors of the code in all rows, `none` within one", near
    gains = mnist.above_none(runs).items()
    unclear = all(gain < 2 * mnist.seed_deviation(runs, model) for model, gain in gains)
    yield "no row is above `none` by more than seeds differ", unclear
    holding = _holding(runs) == {"laplace", "laplace+sdq", "response"}
    yield "`jopeq` spends more than asked for; `laplace+sdq` and `response` do not", holding


def _table1_code(results: Results) -> Claims:
    far = [
        (model, row)
        for model in mnist.MODELS
        for row, off in _in_errors(results.table1_code, model).items()
        if off >= 2
    ]
    only = far == [("linear", "jopeq")] and _in_errors(results.table1_code, "linear")["jopeq"] < 3
    yield (
        "as the code, all rows but one are within two standard errors of it, that one in three",
        only,
    )


def _in_errors(runs: pd.DataFrame, model: str) -> pd.Series:
    """Distance of each row from the code's single run, in standard errors of the difference."""
    gaps = mnist.above_the_code(runs, model)
    return gaps.abs() / mnist.difference_error(runs, model)[gaps.index]


def _holding(runs: pd.DataFrame) -> set[str]:
    """The private schemes whose rows all hold the requested ε."""
    private = runs[runs.nominal.notna()]
    holds = private.epsilon <= private.nominal * (1 + 1e-9)
    names = private.label.str.partition(",")[0]
    return set(names) - set(names[~holds])


def _fig2(results: Results) -> Claims:
    snr, share = (mnist.fig2_grid(results.fig2, name) for name in ("snr", "overload"))
    loss = snr[8.0] - snr.min(axis=1)
    joint, separate = (loss.xs(name, level="scheme") for name in ("jopeq", "laplace+sdq"))
    hardly = bool((joint < 0.2).all() and (separate > 2).all())
    yield "`jopeq` hardly loses when the rate falls (0.2 dB), the separate design does", hardly
    separate, loads = (grid.xs("laplace+sdq", level="scheme") for grid in (snr, share))
    joint, joint_loads = (grid.loc[3.0, "jopeq"] for grid in (snr, share))
    lifted = bool(
        (separate[1.0] > separate[2.0]).all()
        and (loads[1.0] > 10 * loads[2.0]).all()
        and joint[1.0] > joint[8.0]
        and joint_loads[1.0] > 0.01 > 100 * joint_loads[8.0]
    )
    yield "at R = 1 entries overload; `laplace+sdq` beats R = 2, at ε = 3 `jopeq` R = 8", lifted
    supports = mnist.fig2_supports(results.fig2)
    lost = supports.loc[mnist.BALL] - supports[supports.index.str.startswith("γ")]
    worse = bool((lost.loc[:, :7.0] > 0).all(axis=None) and (lost[8.0] < 0).all())
    yield "in plain `sdq` the paper's γ is worse than the ball and a cell up to R = 7", worse
    by_scheme, steps = snr.loc[:, 2.0:].stack().unstack("scheme"), snr.diff(axis=1)
    second = steps[2.0].xs("response", level="scheme")
    is_most = second >= steps.groupby("epsilon").max().max(axis=1)
    best = bool((by_scheme.idxmax(axis=1) == "response").all() and is_most.all())
    yield "`response` is the best from two bits on, and gains most from the second bit", best


def _fig3(results: Results) -> Claims:
    first, last = (mnist.spread_after(results.fig3, place) for place in (0, -1))
    yield "the curves differ in the first rounds (1 point), not at the end", first > 1.0 > 2 * last


def _table2(results: Results) -> Claims:
    runs = results.table2
    gains, high = cifar.gains(runs), runs.lr == cifar.TOO_HIGH
    best = (cifar.best_rates(runs) == 0.03).all() and (
        gains.gain[gains.lr == cifar.TOO_HIGH] < 0
    ).all()
    is_one = runs.seed[high].nunique() == 1
    yield "lr 0.03 is best in all schemes; lr 0.2 (one seed) is below 0.1", is_one and bool(best)
    means = runs[runs.lr == cifar.LEARNING_RATE].groupby("scheme").test_accuracy.mean()
    pairs = [cifar.schemes_at(*column) for column in cifar.COLUMNS]
    costs = all(means[at["jopeq"].spec] < means[at["jopeq, published"].spec] for at in pairs)
    yield "calibrating `jopeq` to the ε asked for costs accuracy in every column", costs
    gaps = dict(cifar.quantized_as_the_code(runs).index)
    yield (
        "as the code quantizes, `t+sdq` gains and `jopeq` does not",
        gaps["t+sdq"] > 1 > gaps["jopeq"],
    )
    is_published = runs.label.str.contains("published")
    small = bool((runs.epsilon > 1.5 * runs.nominal)[is_published].all())
    yield "the published (s², ν) do not hold the ε they stand for", small
    holding = _holding(runs[~is_published]) == {"t", "t+sdq", "response"}
    yield "`t`, `t+sdq` and `response` hold the ε that is asked for; `jopeq` does not", holding


def _snr(results: Results) -> Claims:
    off, other = ((results.snr[way] - results.snr.paper).abs() for way in ("code", "whole"))
    met = bool((off < 0.5).all() and (other > off).all())
    yield "the code's way gives the paper's SNRs to 0.5 dB, each other way is further off", met


def _fig6(results: Results) -> Claims:
    attacks = results.fig6
    yield "no attack of Figure 6 would change with more iterations", bool(attacks.final.all())
    hits = hit_labels(attacks, "label")[0]
    wide = hits == {"sdq, R=8, γ=3", "sdq, R=16, γ=3", "sdq, R=16, γ=40"}
    yield "the paper's attack recovers images from fine `sdq` with a wide support alone", wide
    held = bool(3.0 < attacks.peak.max() < 3.0 * cells.WIDE)
    yield "the largest entry lies beyond the unit ball, at 3 times the rms, and in γ = 3", held
    hits = hit_labels(attacks, "label", "stopped early")[0]
    some = hits == {"sdq, R=8", "sdq, R=16", "sdq, R=8, γ=3", "sdq, R=16, γ=3"}
    yield "stopped early, it recovers images from `sdq` at R = 8 and 16 only", some
    private = {"jopeq, ε=3, R=8", "response, ε=3, R=8"}
    coded = {"sdq, R=8", *private}
    none = all(hit_labels(attacks, method) == (set(), coded) for method in ("dlg", "idlg"))
    yield "DLG and iDLG recover none from any of the three schemes they were run on", none
    inverted = hit_labels(attacks, "inverting") == ({"sdq, R=8"}, private)
    yield "inverting gradients recovers images from `sdq`, none from private schemes", inverted
    most = hit_labels(attacks, "adaptive")[1] == {"jopeq, ε=3, R=8"}
    yield "the adaptive attacker recovers images from every scheme but `jopeq` at ε = 3", most


def _fig4(results: Results) -> Claims:
    attacks = results.fig4
    yield "no attack of Figure 4 would change with more iterations", bool(attacks.final.all())
    by_curve = attacks.groupby(["label", "method"])["epoch"].agg(set)
    is_whole = all(epochs == set(range(cells.EPOCHS + 1)) for epochs in by_curve)
    whole = is_whole and ("raw", "adaptive") not in by_curve.index
    yield "every epoch is attacked; raw gradients adaptively before training only", whole
    ssim = attacks.pivot_table("mean_ssim", "epoch", ["method", "label"])
    raw, private = ssim["label", "raw"], ssim["adaptive"].drop(columns="sdq, R=8")
    early = bool(raw.idxmax() == 0 and private.idxmax().between(1, 10).all())
    yield "SSIM of raw gradients falls with training; that of private ones rises first", early


def _fig5(results: Results) -> Claims:
    attacks, curves = results.fig5, fig5_curves(results.fig5)
    yield "no attack of Figure 5 would change with more iterations", bool(attacks.final.all())
    schemes, coarse = cells.fig5_schemes(), ("jopeq, R=4", "jopeq, R=8")
    quiet = {at for at, coder in schemes.items() if coder.noise is None and at[0] in coarse}
    expected = {(coarse[0], epsilon) for epsilon in cells.FIG5_EPSILONS}
    expected |= {(coarse[1], epsilon) for epsilon in cells.FIG5_EPSILONS if epsilon >= 100}
    places = zip(curves.curve, curves.epsilon, strict=True)
    is_quiet = [name == coarse[0] or (name == coarse[1] and e > 99) for name, e in places]
    groups = curves[is_quiet].groupby(["curve", "method"])["mean_mse"]
    flat = bool((groups.max() < 1.05 * groups.min()).all()) and quiet == expected
    yield "`jopeq` adds no noise at R = 4, nor at R = 8 from ε = 100: the MSE is flat", flat
    clipped = curves[curves.curve.isin(["laplace", "jopeq, R=16"])]
    by_epsilon = clipped.pivot_table("mean_mse", ["method", "curve"], "epsilon")
    last, before = by_epsilon.iloc[:, -1], by_epsilon.iloc[:, -4]
    is_level = (last.loc["label"] / before.loc["label"]).between(0.95, 1.05)
    is_closer = last.loc["adaptive"] < last.loc["label"] / 100
    stopped = bool(is_level.all() and is_closer.all())
    yield "clipping stops the paper's attack; the adaptive one comes far closer", stopped
    free = curves[attacks.label.str.contains("no clipping")]
    is_whole = (free.hits == free.images).groupby(free.epsilon).all()
    is_free = free.peak.max() < cells.UNCLIPPED
    all_found = bool(is_free and is_whole.is_monotonic_increasing and is_whole.iloc[-1])
    yield "without clipping the paper's attack gets all images from some ε on", all_found


def _fine(results: Results) -> Claims:
    mse = fig5_curves(results.fine).pivot(index="epsilon", columns="curve", values="mean_mse")
    alike = (mse["jopeq, R=32"] / mse["laplace"]).between(0.8, 1.25).all()
    yield "at R = 32 the error is that of `laplace`", bool(alike)
    bad = results.fine[results.fine.mean_mse > 0.2]
    better = bool((bad.mse_of_bytes.map(np.mean) < bad.mean_mse).all() and len(bad))
    yield "wrapped bytes make bad reconstructions look better", better


def _repository(results: Results) -> Claims:
    found = results.repository.pivot_table("mean_ssim", "epoch", "label")
    off, jopeq = found["raw"] - list(cells.REPOSITORY_SSIM["raw"]), found["jopeq, ε=3, R=8"]
    met = bool(off[[0, 5]].abs().max() < 0.05 and off[29] > 0.1 and jopeq.max() < 0.02)
    yield "the repository's SSIMs are met at epochs 0 and 5, lower later; none of `jopeq`", met


SECTIONS: Mapping[str, Callable[[Results], Claims]] = {
    "table1": _table1,
    "table1_code": _table1_code,
    "fig2": _fig2,
    "fig3": _fig3,
    "table2": _table2,
    "snr": _snr,
    "fig4": _fig4,
    "fig5": _fig5,
    "fine": _fine,
    "fig6": _fig6,
    "repository": _repository,
}
