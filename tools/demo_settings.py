"""Chooses clip and learning rate of every way that ``jopeq-lab demo`` shows, and prints them.

    python tools/demo_settings.py

For each seed a quarter of the training records is held out. The settings of least loss on them, at
both ε together, are chosen; the records that the demo tests on are not looked at. Private noise has
no seed, so that another run may choose neighbours.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from itertools import product

from jopeq import kernels
from jopeq_lab import demo
from jopeq_lab.training import data
from jopeq_lab.training.simulation import train

CLIPS = (0.1, 0.3, 1.0)
RATES = {"cancer": (1.0, 2.0, 4.0), "mnist5k": (8.0, 20.0, 50.0)}


def loss_of(study: demo.Study, way: str, seed: int, clip: float, lr: float) -> float:
    """On the records held out, the mean of both ε."""
    dataset = data.load(study.data)
    if study.test is not None:
        dataset = dataset.split_anew(study.test, seed)
    fewer = replace(study, each=study.each * 3 // 4)
    held = demo.HOSPITALS * (study.each - fewer.each)
    losses = []
    for epsilon in demo.EPSILONS:
        config = demo.config_of(fewer, way, epsilon, clip, lr)
        result = train(replace(config, seed=seed, validation=held), dataset=dataset)
        losses.append(result.history[-1].validation_loss)
    return statistics.fmean(losses)


def main() -> None:
    """Print the settings of every study and way, a pair for each seed."""
    kernels.use("off")
    for study in demo.STUDIES:
        for way in demo.TUNED:
            chosen = []
            for seed in range(study.seeds):
                places = list(product(CLIPS, RATES[study.data]))
                losses = [loss_of(study, way, seed, *place) for place in places]
                chosen.append(places[losses.index(min(losses))])
            print(f"{study.data} {way}: {chosen}", flush=True)


if __name__ == "__main__":
    main()
