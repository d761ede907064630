"""The kept attacks as data frames, and the tables of Figures 4 to 6."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from jopeq.analysis.exact import exact_epsilon
from jopeq.lab.attacks.similarity import RECOVERED, Fraction, measure_fraction
from jopeq.privacy.guarantee import digits_up
from jopeq.registry import scheme_from_spec
from jopeq.schemes.base import Scheme
from paper.attacks import read_attacks
from paper.cells import (
    COARSE,
    IMAGES,
    REPOSITORY_EPOCHS,
    REPOSITORY_SSIM,
    figure_cells,
    without_channel,
)
from paper.frames import frame_of
from paper.words import number, short


def machines(attacks: pd.DataFrame) -> str:
    """What the attacks were run on."""
    pairs = dict.fromkeys(zip(attacks.device, attacks.torch, strict=True))
    return " and ".join(f"{device} with PyTorch {torch}" for device, torch in pairs)


def attacks_of(name: str, path: Path) -> pd.DataFrame:
    """The kept attacks of a figure, in the order of its cells; empty if one is missing."""
    found = {one.key: one for one in read_attacks(path) if one.images == IMAGES}
    wanted = {cell.key: cell for cell in figure_cells(name)} if found else {}
    if not found or not wanted.keys() <= found.keys():
        return pd.DataFrame()
    attacked = [found[key] for key in wanted]
    frame = frame_of(attacked)
    frame["label"] = [cell.label for cell in wanted.values()]
    frame["mean_ssim"] = frame.ssim.map(np.mean)
    frame["mean_mse"] = frame.mse.map(np.mean)
    is_found = [[loss is not None for loss in one.loss] for one in attacked]  # else never found
    is_close = [[ssim > RECOVERED for ssim in one.ssim] for one in attacked]
    frame["hits"] = (np.array(is_found) & np.array(is_close)).sum(axis=1)
    frame["final"] = [one.is_final(wanted[one.key].config().iterations) for one in attacked]
    return frame


def recovered(attacks: pd.DataFrame, label: str, method: str, variant: str = "") -> Fraction:
    """The largest fraction of images that one attack on one scheme recovers at any epoch."""
    is_it = (attacks.label == label) & (attacks.method == method) & (attacks.variant == variant)
    worst = attacks.loc[attacks.hits[is_it].idxmax()]
    return measure_fraction(worst.hits, worst.images)


def hit_labels(attacks: pd.DataFrame, method: str, variant: str = "") -> tuple[set[str], set[str]]:
    """From which coded gradients an attack recovers an image, and from which it recovers none."""
    mine = attacks[(attacks.method == method) & (attacks.variant == variant)]
    mine = mine[mine.label != "raw"]
    return set(mine.label[mine.hits > 0]), set(mine.label[mine.hits == 0])


@lru_cache(maxsize=256)
def server_epsilon(scheme: Scheme) -> float:
    """The exact ε of one entry against the server where it is computed, else the proven one."""
    proven = scheme.guarantee
    if proven.is_exact or math.isinf(proven.epsilon):
        return proven.epsilon
    exact = exact_epsilon(scheme)
    return proven.epsilon if exact is None else exact.server


def fig6(attacks: pd.DataFrame) -> pd.DataFrame:
    """Every scheme and attack at the first weights, as texts."""
    schemes = attacks.groupby("spec", sort=False)
    rows = []
    for one in (one for _, mine in schemes for one in mine.itertuples()):
        epsilon = server_epsilon(scheme_from_spec(without_channel(one.spec)))
        is_read = one.method in ("dlg", "idlg")
        rows.append(
            {
                "scheme": one.label,
                "ε per entry, server": "none" if math.isinf(epsilon) else digits_up(epsilon, 3),
                "attack": f"{one.method}, {one.variant}" if one.variant else one.method,
                "SSIM, mean": number(one.mean_ssim, 3),
                "recovered": str(measure_fraction(one.hits, one.images)),
                "MSE": number(one.mean_mse, 4),
                "labels read": f"{one.labels_right}/{one.images}" if is_read else "given",
            }
        )
    return pd.DataFrame(rows)


def fig4(attacks: pd.DataFrame) -> pd.DataFrame:
    """One row a curve, one column a coarse epoch, as texts."""
    curves = ["method", "label"]
    coarse = attacks[attacks.epoch % COARSE == 0]
    means = coarse.pivot_table("mean_ssim", curves, "epoch", sort=False).sort_index(axis=1)
    shown = means.map(lambda value: number(value, 3))
    shown = shown.rename(columns=lambda epoch: f"epoch {epoch}")
    most, images = attacks.groupby(curves)["hits"].max(), attacks.images.iloc[0]
    shown["recovered, at most"] = [
        str(measure_fraction(most[curve], images)) for curve in shown.index
    ]
    shown = shown.reset_index()
    shown.insert(0, "scheme", shown.pop("label"))
    return shown.rename(columns={"method": "attack"})


def repository(attacks: pd.DataFrame) -> pd.DataFrame:
    """Mean SSIM by epoch in the setting of the authors' attack repository: theirs and ours."""
    rows = []
    for label, theirs in REPOSITORY_SSIM.items():
        ours = attacks[attacks.label == label].set_index("epoch").mean_ssim
        pairs = zip(REPOSITORY_EPOCHS, theirs, strict=True)
        cells = {f"epoch {e}": f"{number(one, 3)} / **{number(ours[e], 3)}**" for e, one in pairs}
        rows.append({"scheme": label, **cells})
    return pd.DataFrame(rows)


def fig5(attacks: pd.DataFrame) -> pd.DataFrame:
    """The MSE at the smallest and the largest ε of every curve, as texts."""
    ends = fig5_curves(attacks).groupby(["curve", "method"], sort=False)["mean_mse"]
    shown = pd.DataFrame(
        {
            "MSE at the smallest ε": ends.first().map(short),
            "MSE at the largest ε": ends.last().map(short),
        }
    )
    return shown.reset_index().rename(columns={"method": "attack"})


def fig5_curves(attacks: pd.DataFrame) -> pd.DataFrame:
    """The attacks of Figure 5 with their curve and ε."""
    split = attacks.label.str.extract(r"(?P<curve>.+), ε=(?P<epsilon>[\d.e+]+)")
    return attacks.join(split.astype({"epsilon": float}))
