"""The attacks of Figures 4 to 6, by scheme, method and stage of training, and their tables.

Setting (paper, section IV-B, and Zhao et al. 2020): LeNet with sigmoids, weights uniform in ±½,
CIFAR-10, one user with one image, the first 70 training images, the true label given.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from jopeq.analysis.exact import exact_epsilon
from jopeq.privacy.guarantee import digits_up
from jopeq.registry import scheme, scheme_from_spec
from jopeq.schemes.base import Scheme
from jopeq_lab.attacks.attack import AttackConfig
from jopeq_lab.attacks.similarity import Fraction, measure_fraction
from paper.runs import theirs
from paper.words import number, short

IMAGES, EPOCHS = 70, 30
EPSILON, RATE = 3.0, 8.0
COARSE = 5  # epochs between the points of Figure 4 that its table has
FIG5_EPSILONS = tuple(10.0 ** (1 + half / 2) for half in range(9))
FIG5_RATES = (4.0, 8.0, 16.0)
FEW, FINE_RATES = 8, (16.0, 32.0)  # images and rates of its table on MSE in bytes
UNCLIPPED = 8.0  # spread at which no entry of these gradients is clipped
FIG6_EPSILON = 10.0
WIDE, WIDEST = 3.0, 40.0  # supports that hold all entries of these gradients at a spread of 3
ITERATIONS, EARLY = 300, 5
# How an attack departs from this package's: as the DLG authors' code runs it, or before it fits
# the coding errors
VARIANTS: dict[str, dict[str, Any]] = {
    "": {},
    "published": {"start": "normal", "line_search": "none"},
    "stopped early": {"iterations": EARLY},
    # on weights that are trained as in the repository of the paper's attacks
    "repository": {"start": "normal", "line_search": "none", "iterations": 200},
}
REPOSITORY_EPOCHS = (0, 5, 10, 15, 20, 25, 29)
# SSIM after these epochs, mean over 70 images
REPOSITORY_SSIM = {row: one["ssim"] for row, one in theirs("repository", "Figure 4").items()}
ATTACKERS = {"label": "the paper's attack (label given)", "adaptive": "adaptive attacker"}


@dataclass(frozen=True)
class Cell:
    """One scheme attacked in one way at one stage of training, over all images."""

    label: str
    spec: str
    method: str = "label"
    epoch: int = 0
    variant: str = ""

    @property
    def scheme(self) -> Scheme:
        return _built(self.spec)

    @property
    def key(self) -> tuple[str, str, int, str]:
        """Everything that identifies the attack; the label does not."""
        return without_channel(self.spec), self.method, self.epoch, self.variant

    @property
    def picture(self) -> str:
        """The name under which its reconstructions are kept."""
        return f"{without_channel(self.spec)} {self.method} {self.variant}".strip()

    def config(self) -> AttackConfig:
        """The settings of the attack."""
        settings = {"iterations": ITERATIONS, **VARIANTS[self.variant]}
        return AttackConfig(method=self.method, **settings)


_built = lru_cache(maxsize=256)(scheme_from_spec)


def without_channel(text: str) -> str:
    """A specification without the channel's name.

    Kept attacks on ``response`` met channels of an earlier version, and stand for today's.

    >>> without_channel('["response",{"channel":"best","epsilon":3.0,"fingerprint":"0f","rate":8}]')
    '["response",{"epsilon":3.0,"rate":8}]'
    """
    return re.sub(r'"(channel|fingerprint)":"\w+",', "", text)


def fig4_schemes() -> dict[str, Scheme]:
    """The paper's two curves, then compression alone and ours."""
    return {
        "raw": scheme("none"),
        "sdq, R=8": scheme("sdq", rate=RATE),
        "jopeq, ε=3, R=8": scheme("jopeq", epsilon=EPSILON, rate=RATE),
        "response, ε=3, R=8": scheme("response", epsilon=EPSILON, rate=RATE),
    }


def fig4_cells() -> Iterator[Cell]:
    """Every epoch; the adaptive attack wherever it differs from the paper's."""
    for method in ATTACKERS:
        for epoch in range(EPOCHS + 1):
            for label, coder in fig4_schemes().items():
                if method == "label" or label != "raw":
                    yield Cell(label, coder.spec, method, epoch)


@lru_cache(maxsize=1)
def fig5_schemes() -> dict[tuple[str, float], Scheme]:
    """The schemes of Figure 5, by curve and ε."""
    found = {}
    for epsilon in FIG5_EPSILONS:
        found["laplace", epsilon] = scheme("laplace", epsilon=epsilon)
        for rate in FIG5_RATES:
            found[f"jopeq, R={rate:g}", epsilon] = scheme("jopeq", epsilon=epsilon, rate=rate)
        both = {"epsilon": epsilon, "spread": UNCLIPPED}
        found["laplace, no clipping", epsilon] = scheme("laplace", **both)
        found["jopeq, R=16, no clipping", epsilon] = scheme("jopeq", **both, rate=16.0)
    return found


def fig5_cells() -> Iterator[Cell]:
    """All curves by the paper's attack; those of the paper's spread by the adaptive one too."""
    for method in ATTACKERS:
        for (curve, epsilon), coder in fig5_schemes().items():
            if method == "label" or coder.spread != UNCLIPPED:
                yield Cell(f"{curve}, ε={epsilon:g}", coder.spec, method)


def fine_cells() -> Iterator[Cell]:
    """The paper's attack at the finest rates of its authors' list, and on Laplace noise alone."""
    for epsilon in FIG5_EPSILONS[:8:2]:
        yield Cell(f"laplace, ε={epsilon:g}", scheme("laplace", epsilon=epsilon).spec)
        for rate in FINE_RATES:
            coder = scheme("jopeq", epsilon=epsilon, rate=rate)
            yield Cell(f"jopeq, R={rate:g}, ε={epsilon:g}", coder.spec)


def fig6_schemes() -> dict[str, Scheme]:
    """The columns of the picture grid."""
    both = {"epsilon": FIG6_EPSILON, "rate": RATE}
    return {
        "raw": scheme("none"),
        **{f"sdq, R={rate}": scheme("sdq", rate=float(rate)) for rate in (4, 8, 16)},
        **_wide(WIDE),
        "laplace, ε=10": scheme("laplace", epsilon=FIG6_EPSILON),
        "jopeq, ε=10, R=8": scheme("jopeq", **both),
        "response, ε=10, R=8": scheme("response", **both),
        "jopeq, ε=3, R=8": scheme("jopeq", epsilon=EPSILON, rate=RATE),
        "response, ε=3, R=8": scheme("response", epsilon=EPSILON, rate=RATE),
    }


def _wide(gamma: float) -> dict[str, Scheme]:
    """Compression alone with a support that holds all entries."""
    rates = (4.0, 8.0, 16.0)
    return {f"sdq, R={r:g}, γ={gamma:g}": scheme("sdq", rate=r, gamma=gamma) for r in rates}


def fig6_cells() -> Iterator[Cell]:
    """Every column by the paper's attack and by the adaptive one."""
    for method in ATTACKERS:
        for label, coder in fig6_schemes().items():
            yield Cell(label, coder.spec, method)


def method_cells() -> Iterator[Cell]:
    """All methods at the first weights; the paper's as published, stopped early, with a wide γ."""
    for label, coder in fig4_schemes().items():
        for method in ("dlg", "idlg", "inverting"):
            yield Cell(label, coder.spec, method)
        yield Cell(label, coder.spec, "label", variant="published")
    for label, coder in fig6_schemes().items():
        yield Cell(label, coder.spec, "label", variant="stopped early")
    for label, coder in _wide(WIDEST).items():
        yield Cell(label, coder.spec)


def repository_cells() -> Iterator[Cell]:
    """The paper's two curves of Figure 4, trained and attacked as in the authors' repository."""
    for label in REPOSITORY_SSIM:
        for epoch in REPOSITORY_EPOCHS:
            yield Cell(label, fig4_schemes()[label].spec, "dlg", epoch, "repository")


def figure_cells(name: str) -> list[Cell]:
    """Everything a figure and its table show; the table of Figure 6 has all methods."""
    one = {"fig4": fig4_cells, "fig5": fig5_cells, "repository": repository_cells}
    one["fine"] = fine_cells
    return [*fig6_cells(), *method_cells()] if name == "fig6" else [*one[name]()]


# Tables, of the kept attacks


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
    """One row per curve, one column per coarse epoch, as texts."""
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
    for label, kept in REPOSITORY_SSIM.items():
        ours = attacks[attacks.label == label].set_index("epoch").mean_ssim
        pairs = zip(REPOSITORY_EPOCHS, kept, strict=True)
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
