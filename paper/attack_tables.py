"""The tables of Figures 4 to 6, from the kept attacks."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import pandas as pd

from jopeq.analysis.exact import exact_epsilon
from jopeq.privacy.guarantee import digits_up
from jopeq.registry import scheme_from_spec
from jopeq.schemes.base import Scheme
from jopeq_lab.attacks.similarity import Fraction, measure_fraction
from paper import cells
from paper.words import number, short


def machines(attacks: pd.DataFrame) -> str:
    """The machines that ran the attacks."""
    pairs = dict.fromkeys(zip(attacks.device, attacks.torch, strict=True))
    return " and ".join(f"{device} with PyTorch {torch}" for device, torch in pairs)


def recovered(attacks: pd.DataFrame, label: str, method: str, variant: str = "") -> Fraction:
    """The largest fraction of images that one attack on one scheme recovers at any epoch."""
    is_it = (attacks.label == label) & (attacks.method == method) & (attacks.variant == variant)
    worst = attacks.loc[attacks.hits[is_it].idxmax()]
    return measure_fraction(worst.hits, worst.images)


def hit_labels(attacks: pd.DataFrame, method: str, variant: str = "") -> tuple[set[str], set[str]]:
    """Split coded gradients by whether an attack recovers an image from them."""
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
        epsilon = server_epsilon(scheme_from_spec(cells.without_channel(one.spec)))
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
    """One row per curve, one column per coarse epoch, as texts."""
    curves = ["method", "label"]
    coarse = attacks[attacks.epoch % cells.COARSE == 0]
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
    for label, theirs in cells.REPOSITORY_SSIM.items():
        ours = attacks[attacks.label == label].set_index("epoch").mean_ssim
        pairs = zip(cells.REPOSITORY_EPOCHS, theirs, strict=True)
        found = {f"epoch {e}": f"{number(one, 3)} / **{number(ours[e], 3)}**" for e, one in pairs}
        rows.append({"scheme": label, **found})
    return pd.DataFrame(rows)


def fig5(attacks: pd.DataFrame) -> pd.DataFrame:
    """The MSE at the smallest and the largest ε of every curve, as texts."""
    ends = fig5_curves(attacks).groupby(["curve", "method"], sort=False)["mean_mse"]
    names = {"smallest": ends.first(), "largest": ends.last()}
    shown = pd.DataFrame({f"MSE at the {name} ε": mse.map(short) for name, mse in names.items()})
    return shown.reset_index().rename(columns={"method": "attack"})


def fig5_curves(attacks: pd.DataFrame) -> pd.DataFrame:
    """The attacks of Figure 5 with their curve and ε."""
    split = attacks.label.str.extract(r"(?P<curve>.+), ε=(?P<epsilon>[\d.e+]+)")
    return attacks.join(split.astype({"epsilon": float}))


def fine(attacks: pd.DataFrame) -> pd.DataFrame:
    """MSE by curve and ε: ours, and of bytes that wrap around, as texts."""
    curves = fig5_curves(attacks)
    both = zip(curves.mean_mse, curves.mse_of_bytes.map(np.mean), strict=True)
    curves["cell"] = [f"{number(ours, 3)} / {number(theirs, 3)}" for ours, theirs in both]
    shown = curves.pivot(index="curve", columns="epsilon", values="cell")
    return shown.rename(columns=lambda epsilon: f"ε = {short(epsilon)}").reset_index()
